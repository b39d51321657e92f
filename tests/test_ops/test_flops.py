import pytest
import torch
from helpers import image
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mmbixt.backbones import BiFormer, BiSASwin
from mmbixt.ops import use_ops
from mmbixt.ops.dispatch import recorded_choices
from mmbixt.ops.flop_counter import FlopCounter

# where no window or region is padded, both paths do the same products
NETWORKS = {
    'swin': lambda: BiSASwin(
        dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4), bisa_stages=()
    ),
    'bisa': lambda: BiSASwin(dict(embed_dims=24, depths=(2,), num_heads=(3,), window_size=4)),
    'biformer': lambda: BiFormer(
        dict(embed_dims=(32, 64, 128, 256), depths=(1, 1, 1, 1)), num_regions=4
    ),
}


def count(network, path, with_gradients):
    counter, unfused = FlopCounter(), sdpa_kernel(SDPBackend.MATH)
    with use_ops(path), counter, unfused, torch.set_grad_enabled(with_gradients):
        maps = network(image(1, 128, 128))
        if with_gradients:
            sum(x.sum() for x in maps).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(('name', 'again'), [('swin', 0), ('bisa', 0), ('biformer', 0.02)])
def test_what_torch_counts_is_what_the_plain_paths_do(name, again):
    """``again``: what the backward pass may compute twice."""
    network = NETWORKS[name]().eval()
    ours, plain = (count(network, path, False) for path in ('auto', 'reference'))
    assert ours == plain
    ours, plain = (count(network.train(), path, True) for path in ('auto', 'reference'))
    assert plain <= ours <= (1 + again) * plain


def test_what_is_counted_is_what_runs_and_what_torchs_own_counter_sees():
    network = NETWORKS['swin']().eval()
    with recorded_choices() as seen:
        total = count(network, 'auto', False)
    with recorded_choices() as plain, torch.no_grad():
        network(image(1, 128, 128))
    assert seen == plain
    assert 'cpu' in {choice.path for choice in seen}
    unfused = sdpa_kernel(SDPBackend.MATH)
    with FlopCounterMode(display=False) as counter, unfused, torch.no_grad():
        network(image(1, 128, 128))
    assert sum(counter.flop_counts['Global'].values()) == total
    assert 'BiSASwin.stages.0.blocks.1.ffn.layers.1' in counter.flop_counts

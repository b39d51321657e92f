import pytest
import torch
from helpers import image
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmbixt.backbones import BiFormer, BiSASwin
from mmbixt.ops import use_ops
from mmbixt.ops.flop_counter import FlopCounter

# without padded windows or regions, both paths compute the same products
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


@pytest.mark.parametrize(('name', 'twice'), [('swin', 0), ('bisa', 0), ('biformer', 0.02)])
def test_the_count_is_that_of_the_reference_path(name, twice):
    """``twice``: the share of operations that the backward pass may compute again."""
    network = NETWORKS[name]().eval()
    ours, plain = (count(network, path, False) for path in ('auto', 'reference'))
    assert ours == plain
    ours, plain = (count(network.train(), path, True) for path in ('auto', 'reference'))
    assert plain <= ours <= (1 + twice) * plain

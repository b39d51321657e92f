"""Each family through inductor, in training and in evaluation.

Takes minutes, so it is a part of `make test-zoo`. That there are no graph
breaks is tested in seconds, in test_contract.py.
"""

import pytest
import torch
from helpers import assert_close, image
from mmengine.registry import MODELS
from torch._dynamo.utils import counters

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.usefixtures('fresh_compiler'),
]

# two layers or blocks have all parts of a network; with full widths, for real shapes
NETWORKS = {
    'bixt': dict(type='mmbixt.BiXT', out_indices=(0, 1)),
    'bixt with LPI': dict(
        type='mmbixt.BiXT', patch_embed='conv', token_refiner='lpi', out_indices=(0, 1)
    ),
    'xcit': dict(type='mmbixt.XCiT', arch='tiny12', out_indices=(0, 1)),
    'biformer': dict(
        type='mmbixt.BiFormer',
        arch=dict(embed_dims=(64, 128, 256, 512), depths=(1, 1, 2, 1)),
    ),
    'bisa_swin': dict(
        type='mmbixt.BiSASwin',
        arch=dict(embed_dims=96, depths=(2, 2, 1, 1), num_heads=(3, 6, 12, 24)),
    ),
}


def gradients(backbone, call, x):
    """Of a mean of each feature map: in a sum, rounding errors of the largest hide the others."""
    maps = call(x)
    weights = [torch.cos(torch.arange(m.numel()).float()).view_as(m) for m in maps]
    loss = sum((m * w).mean() for m, w in zip(maps, weights, strict=True))
    return [*(m.detach() for m in maps), *torch.autograd.grad(loss, list(backbone.parameters()))]


def assert_same_gradients(actual, expected):
    largest = max(float(g.abs().max()) for g in expected)
    for found, wanted in zip(actual, expected, strict=True):
        scale = wanted.abs().max().clamp_min(1e-3 * largest)
        assert (found - wanted).abs().max() <= 1e-3 * scale


SQUARE, ODD = (512, 512), (225, 290)
SIZES = {'bixt with LPI': SQUARE, 'xcit': ODD, 'biformer': ODD, 'bisa_swin': SQUARE}


@pytest.mark.parametrize(('family', 'size'), SIZES.items(), ids=SIZES)
def test_compiled_networks_equal_eager_ones(family, size):
    torch.manual_seed(0)
    backbone = MODELS.build({**NETWORKS[family], 'drop_path_rate': 0.0}).eval()
    compiled = torch.compile(backbone, fullgraph=True, dynamic=False)
    x = image(1, *size)
    with torch.no_grad():
        assert_close(compiled(x), backbone(x), 1e-4)
    expected = gradients(backbone.train(), backbone, x)
    for _ in range(3):  # writing past the end of a tensor shows only in later steps
        assert_same_gradients(gradients(backbone, compiled, x), expected)


# inductor (of torch 2.11) cannot sort symbolic strides of channels-last inputs of convolutions
WITHOUT_LAYOUTS = dict(options={'layout_optimization': False})
# inductor takes minutes for each, so that it compiles one
TRAINED = [(family, dict(backend='aot_eager')) for family in NETWORKS] + [('bixt', WITHOUT_LAYOUTS)]
TRAINED_NAMES = [f'{family}, {next(iter(options))}' for family, options in TRAINED]


@pytest.mark.parametrize(('family', 'compiler'), TRAINED, ids=TRAINED_NAMES)
def test_images_may_be_of_several_sizes(family, compiler):
    torch.manual_seed(0)
    backbone = MODELS.build({**NETWORKS[family], 'drop_path_rate': 0.0}).train()
    compiled = torch.compile(backbone, fullgraph=True, **compiler)
    before = counters['stats']['unique_graphs']
    # no last map is one window, or has regions of one cell: a side of 1 takes another graph
    for size in ((256, 288), (290, 321), (384, 256), (320, 353)):
        x = image(2, *size)
        assert_same_gradients(gradients(backbone, compiled, x), gradients(backbone, backbone, x))
    if backbone.has_free_sizes:  # others have a graph for each way of padding
        assert counters['stats']['unique_graphs'] - before == 2

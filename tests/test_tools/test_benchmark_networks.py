import pytest
import torch
from benchmarking.networks import UnknownRowError, build

from mmbixt.backbones import BiFormer
from mmbixt.ops.dispatch import PATHS

STOCK_SWIN = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'


@pytest.mark.parametrize(
    ('name', 'shapes'),
    [
        ('xcit_nano_12_p16', [(1, 128, 4, 4)] * 4),
        ('timm/vit_tiny_patch16_224', [(1, 16, 192)] * 4),
        ('timm/resnet18', [(1, 64, 32, 32), (1, 64, 16, 16), (1, 128, 8, 8), (1, 256, 4, 4)]),
        (STOCK_SWIN, [(1, 96 * 2**i, 16 >> i, 16 >> i) for i in range(4)]),
        ('configs/bixt/linear_bixt_ti_ade20k.py', [(1, 192, 4, 4)]),
    ],
)
def test_names_stand_for_networks_that_give_maps(name, shapes):
    model, path = build(name, 64)
    assert path == 'auto'
    with torch.no_grad():
        maps = model(torch.randn(1, 3, 64, 64))
    assert [tuple(x.shape) for x in maps][: len(shapes)] == shapes


def test_networks_are_built_for_their_size_and_without_stochastic_depth():
    ours, _ = build('xcit_nano_12_p16', 64)
    theirs, _ = build('timm/xcit_nano_12_p16_224', 64)
    assert theirs.indices == list(ours.out_indices)
    model, path = build('biformer_tiny@reference', 512)
    assert isinstance(model, BiFormer)
    assert path == 'reference'
    assert model.stages[0][0].attn.num_regions == 8
    assert {block.drop_path.drop_prob for stage in model.stages for block in stage} == {0.0}


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('xcit_tiny_13_p16', 'Similar names: xcit_tiny_12_p16'),
        ('timm/xcit_tiny_13', 'has no model'),
        ('biformer_tiny@quick', f'there are {", ".join(PATHS)}, compiled'),
        ('nowhere.py:build', 'There is no file'),
        (f'{__file__}:nothing', 'has no nothing'),
    ],
)
def test_mistakes_are_explained(name, message):
    with pytest.raises(UnknownRowError, match=message):
        build(name, 64)

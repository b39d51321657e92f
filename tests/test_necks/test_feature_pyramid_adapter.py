import pytest
import torch
from helpers import golden, official_state
from mmengine.registry import MODELS

from mmbixt.necks import FeaturePyramidAdapter


@pytest.mark.parametrize(
    ('name', 'stride', 'size'),
    [
        ('xcit_tiny_12_p16', 16, '64x64'),
        ('xcit_tiny_12_p16', 16, '72x104'),
        ('xcit_tiny_12_p8', 8, '64x64'),
    ],
)
def test_xcit_golden(name, stride, size):
    """The authors' maps before their fpn operations go in, those after them come out."""
    reference = golden(f'{name}__dense__{size}')
    neck = FeaturePyramidAdapter(192, stride).eval()
    state = official_state(f'{name}__dense')
    neck.load_state_dict({k: v for k, v in state.items() if k.startswith('fpn')})
    maps = [torch.from_numpy(reference.data[f'pre{i}']) for i in range(4)]
    with torch.no_grad():
        levels = neck(maps)
    for i, level in enumerate(levels):
        assert reference.check(f'post{i}', level.numpy()) < 2e-5


@pytest.mark.parametrize('in_stride', [4, 8, 16, 32])
@pytest.mark.parametrize('out_strides', [(4, 8, 16, 32), (2, 4), (64,), (8, 8, 16)])
def test_levels_have_the_strides_asked_for(in_stride, out_strides):
    neck = FeaturePyramidAdapter(8, in_stride, out_strides)
    maps = [torch.randn(2, 8, 128 // in_stride, 192 // in_stride) for _ in out_strides]
    for level, stride in zip(neck(maps), out_strides, strict=True):
        assert level.shape == (2, 8, 128 // stride, 192 // stride)
    assert neck.out_strides == out_strides
    assert neck.out_channels == (8,) * len(out_strides)


def test_each_map_may_have_its_own_width_and_stride():
    neck = FeaturePyramidAdapter([4, 8], [16, 8], out_strides=(8, 16))
    levels = neck([torch.randn(1, 4, 4, 4), torch.randn(1, 8, 8, 8)])
    assert [tuple(level.shape) for level in levels] == [(1, 4, 8, 8), (1, 8, 4, 4)]


def test_a_single_cell_survives_pooling():
    levels = FeaturePyramidAdapter(8, 16)([torch.randn(1, 8, 1, 3) for _ in range(4)])
    assert levels[3].shape[-2:] == (1, 1)


def test_every_weight_gets_a_gradient():
    neck = FeaturePyramidAdapter(8, 16)
    sum(level.sum() for level in neck([torch.randn(2, 8, 4, 4) for _ in range(4)])).backward()
    assert all(p.grad is not None for p in neck.parameters())


def test_norm_is_open():
    neck = FeaturePyramidAdapter(8, 16, norm_cfg=dict(type='GN', num_groups=2))
    assert isinstance(neck.fpn1[1], torch.nn.GroupNorm)


def test_two_necks_in_a_row():
    neck = MODELS.build(
        [
            dict(type='mmbixt.FeaturePyramidAdapter', in_channels=8, in_strides=16),
            dict(type='mmseg.FPN', in_channels=[8] * 4, out_channels=4, num_outs=4),
        ]
    )
    levels = neck([torch.randn(1, 8, 4, 6) for _ in range(4)])
    assert [tuple(level.shape[1:]) for level in levels] == [
        (4, 16, 24),
        (4, 8, 12),
        (4, 4, 6),
        (4, 2, 3),
    ]


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (dict(in_channels=8, in_strides=14), 'must be powers of two; 14 is none'),
        (dict(in_channels=8, in_strides=16, out_strides=(4, 12)), '12 is none'),
        (dict(in_channels=[8, 8], in_strides=16), 'in_channels.* 2 entries for 4 levels'),
        (dict(in_channels=8, in_strides=[16]), 'in_strides.* 1 entries for 4 levels'),
        (dict(in_channels=8, in_strides=16, out_strides=8), 'out_strides=8 must name one stride'),
        (dict(in_channels=8, in_strides=16, out_strides=()), 'must name one stride per level'),
    ],
)
def test_what_cannot_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeaturePyramidAdapter(**arguments)


@pytest.mark.parametrize(('width', 'count'), [(8, 3), (4, 4)])
def test_other_maps_are_refused(width, count):
    with pytest.raises(ValueError, match=r'width \(8, 8, 8, 8\), but gets \(.*out_indices'):
        FeaturePyramidAdapter(8, 16)([torch.randn(1, width, 4, 4)] * count)

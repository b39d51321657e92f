import pytest
import torch

from mmbixt.necks import FeaturePyramidAdapter


@pytest.mark.parametrize('in_stride', [4, 8, 16, 32])
@pytest.mark.parametrize('out_strides', [(4, 8, 16, 32), (2, 4), (64,), (8, 8, 16)])
def test_levels_have_the_out_strides(in_stride, out_strides):
    neck = FeaturePyramidAdapter(8, in_stride, out_strides)
    maps = [torch.randn(2, 8, 128 // in_stride, 192 // in_stride) for _ in out_strides]
    for level, stride in zip(neck(maps), out_strides, strict=True):
        assert level.shape == (2, 8, 128 // stride, 192 // stride)
    assert neck.out_strides == out_strides
    assert neck.out_channels == (8,) * len(out_strides)


@pytest.mark.parametrize('size', [(4, 6), (1, 4), (2, 1)])
@pytest.mark.parametrize('autocast', [False, True])
def test_levels_are_contiguous_copies(size, autocast):
    """For feature maps in any memory format, in training and evaluation."""
    neck = FeaturePyramidAdapter(8, 16)
    x = torch.randn(2, *size, 8).permute(0, 3, 1, 2)
    for training in (True, False):
        with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
            levels = neck.train(training)([x] * 4)
        for level in levels:
            assert level.stride() == torch.empty(level.shape).stride()
            assert level.data_ptr() != x.data_ptr()


def test_each_feature_map_may_have_its_own_channels_and_stride():
    neck = FeaturePyramidAdapter([4, 8], [16, 8], (4, 16), dict(type='GN', num_groups=2))
    levels = neck([torch.randn(1, 4, 4, 4), torch.randn(1, 8, 1, 3)])
    assert [tuple(level.shape) for level in levels] == [(1, 4, 16, 16), (1, 8, 1, 1)]
    assert isinstance(neck.fpn1[1], torch.nn.GroupNorm)
    sum(level.sum() for level in levels).backward()
    assert all(p.grad is not None for p in neck.parameters())

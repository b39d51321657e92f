import copy

import pytest
import torch
from mmcv.cnn import fuse_conv_bn
from mmengine.registry import init_default_scope

from mmbixt.decode_heads import LinearTokenHead


@pytest.fixture(autouse=True)
def _scope():
    init_default_scope('mmseg')


@pytest.mark.parametrize(('in_channels', 'count'), [(8, 1), ([8, 8], 2)])
def test_is_one_linear_layer_on_the_last_feature_maps(in_channels, count):
    head = LinearTokenHead(in_channels, num_classes=5).eval()
    maps = [torch.randn(2, 8, 6, 4) for _ in range(3)]
    token = torch.cat(maps[-count:], 1)[1, :, 3, 2]
    expected = head.conv_seg.weight[:, :, 0, 0] @ token + head.conv_seg.bias
    torch.testing.assert_close(head(maps)[1, :, 3, 2], expected)
    assert sum(p.numel() for p in head.parameters()) == 5 * 8 * count + 5


@pytest.mark.parametrize('norm', ['LN', 'BN'])
def test_norm_before_the_classifier(norm):
    head = LinearTokenHead(8, 5, norm_cfg=dict(type=norm)).train()
    x = 7 + 3 * torch.randn(2, 8, 6, 4)
    normed = []
    head.conv_seg.register_forward_pre_hook(lambda _, inputs: normed.append(inputs[0]))
    head([x])
    axis = 1 if norm == 'LN' else (0, 2, 3)
    torch.testing.assert_close(normed[0].mean(axis), torch.zeros_like(normed[0].mean(axis)))


@torch.no_grad()
def test_norm_is_not_fused_into_the_classifier():
    head = LinearTokenHead(8, 8, norm_cfg=dict(type='BN')).eval()
    for value in (head.norm.running_mean, head.norm.bias):
        torch.nn.init.normal_(value)
    maps = [torch.randn(2, 8, 6, 4)]
    torch.testing.assert_close(fuse_conv_bn(copy.deepcopy(head))(maps), head(maps))

import pytest
import torch
from mmengine.registry import init_default_scope

from mmbixt.decode_heads import LinearTokenHead


@pytest.fixture(autouse=True)
def _scope():
    init_default_scope('mmseg')


def test_is_one_linear_layer_on_the_last_feature_map():
    head = LinearTokenHead(in_channels=8, num_classes=5).eval()
    maps = [torch.randn(2, 8, 6, 4) for _ in range(3)]
    logits = head(maps)
    assert logits.shape == (2, 5, 6, 4)
    token = maps[-1][1, :, 3, 2]
    expected = head.conv_seg.weight[:, :, 0, 0] @ token + head.conv_seg.bias
    torch.testing.assert_close(logits[1, :, 3, 2], expected)
    assert sum(p.numel() for p in head.parameters()) == 5 * 8 + 5

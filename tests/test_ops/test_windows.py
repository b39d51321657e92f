import pytest
import torch
from torch.nn.functional import pad

from mmbixt.ops.window_attention.windows import Windows

SIZES = [(1, 14, 14, 7, 0), (1, 14, 14, 7, 3), (2, 10, 17, 7, 3), (3, 5, 2, 7, 3), (1, 1, 1, 4, 2)]


def cut_by_hand(x, fill, size, shift):
    """As Swin Transformers do it: fill up, roll, partition."""
    height, width = x.shape[1:3]
    inside = pad(torch.ones(x.shape[:3]), (0, -width % size, 0, -height % size))[..., None]
    x = pad(x, (0, 0, 0, -width % size, 0, -height % size))
    x = (x * inside + fill * (1 - inside)).roll((-shift, -shift), dims=(1, 2))
    x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size)).transpose(2, 3)
    return x.flatten(3, 4).flatten(1, 2)


@pytest.mark.parametrize(('batch', 'height', 'width', 'size', 'shift'), SIZES)
def test_cuts_as_swin_does_and_joins_again(batch, height, width, size, shift):
    x = torch.randn(batch, height, width, 3, dtype=torch.float64, requires_grad=True)
    fill = torch.randn(3, dtype=torch.float64, requires_grad=True)
    layout = Windows.of(x, size, shift)
    cut, expected = layout.cut(x, fill), cut_by_hand(x, fill, size, shift)
    assert torch.equal(cut, expected)
    weight = torch.randn_like(cut)
    ours, by_hand = (
        torch.autograd.grad((part * weight).sum(), (x, fill)) for part in (cut, expected)
    )
    for actual, wanted in zip(ours, by_hand, strict=True):
        torch.testing.assert_close(actual, wanted)
    assert torch.equal(layout.cut(x), cut_by_hand(x, torch.zeros(3), size, shift))
    assert torch.autograd.gradcheck(layout.cut, x)
    assert torch.equal(layout.join(cut), x)
    assert torch.autograd.gradcheck(layout.join, cut.detach().requires_grad_())

"""The code for GPUs, run on a processor: the same networks with another order of operations."""

import pytest
import torch
from helpers import image
from op_checks import assert_same
from torch.nn.attention import SDPBackend, sdpa_kernel
from variants import VARIANTS, build

from mmbixt.ops import dispatch, use_ops


def run(name, path, monkeypatch):
    """Feature maps and the gradients of all weights, in float64."""
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'cpu' if path == 'reference' else 'none')
    backbone = build(VARIANTS[name]).double().eval()
    # the fused kernel for processors has no gradient for a bias
    with use_ops(path), sdpa_kernel(SDPBackend.MATH):
        maps = backbone(image(2, 80, 112).double())
        loss = sum((x * torch.cos(torch.arange(x.numel())).view_as(x)).sum() for x in maps)
        loss.backward()
    return list(maps), [p.grad for p in backbone.parameters()]


@pytest.mark.parametrize('name', VARIANTS)
def test_equals_the_reference_within_rounding(name, monkeypatch):
    expected = run(name, 'reference', monkeypatch)
    assert_same(run(name, 'auto', monkeypatch), expected, 1e-11)

"""The code for GPUs, run on a processor: the same networks with another order of operations."""

import pytest
import torch
from helpers import image
from op_checks import assert_same
from torch.nn.attention import SDPBackend, sdpa_kernel
from variants import FAMILIES, build

from mmbixt.ops import dispatch, use_ops


def run(family, dtype, path, monkeypatch):
    """Feature maps and the gradients of all weights, in float64."""
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'cpu' if path == 'reference' else 'none')
    backbone = build(FAMILIES[family]).to(dtype).eval()
    # the fused kernel for processors has no gradient for a bias
    with use_ops(path), sdpa_kernel(SDPBackend.MATH):
        maps = backbone(image(2, 80, 112).to(dtype))
        loss = sum((x * torch.cos(torch.arange(x.numel())).view_as(x)).sum() for x in maps)
        loss.backward()
    assert all(p.grad.dtype == dtype for p in backbone.parameters())
    return [x.double() for x in maps], [p.grad.double() for p in backbone.parameters()]


@pytest.mark.parametrize('family', FAMILIES)
def test_equals_the_reference_within_rounding(family, monkeypatch):
    expected = run(family, torch.float64, 'reference', monkeypatch)
    assert_same(run(family, torch.float64, 'auto', monkeypatch), expected, 1e-11)


@pytest.mark.parametrize('family', [name for name in FAMILIES if name != 'biformer'])  # routes jump
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision_is_as_exact_as_on_the_reference_path(family, dtype, monkeypatch):
    exact = run(family, torch.float64, 'reference', monkeypatch)
    plain, ours = (run(family, dtype, path, monkeypatch) for path in ('reference', 'auto'))
    for right, reference, found in zip(exact, plain, ours, strict=True):
        error, reference_error = (
            torch.cat([(a - b).flatten() for a, b in zip(x, right, strict=True)]).norm()
            for x in (found, reference)
        )
        assert error <= 1.5 * reference_error

import pytest
import torch
from helpers import assert_close
from op_checks import CASES
from op_checks import linear as make

from mmbixt.ops import dispatch, linear_per_image
from mmbixt.ops.cpu import linear as operators
from mmbixt.ops.linear import outer_sum_per_image


@pytest.fixture(params=['convolved if large', 'always convolved'])
def policy(request, monkeypatch):
    """Convolutions are used, also on processors where they are not faster."""
    monkeypatch.setattr(dispatch, 'ONEDNN_IS_FASTER', True)
    if request.param == 'always convolved':
        monkeypatch.setattr(dispatch, 'MIN_VALUES', 0)
        monkeypatch.setattr(dispatch, 'MIN_MACS', 0)


@pytest.mark.parametrize('shape', CASES[make].values(), ids=CASES[make])
def test_products_of_the_backward_pass(policy, shape):
    x, weight, bias = (v.detach() for v in make(*shape[:3])[1])
    x = x.flatten(0, -2)
    grad = torch.cos(torch.arange(len(x) * len(bias)).float()).view(len(x), -1)
    assert_close(operators.multiply(grad, weight.t()), grad @ weight, 2e-5)
    assert_close(operators.outer_sum(grad, x), grad.t() @ x, 2e-5)
    out = torch.empty_like(grad)
    assert operators.multiply(x, weight, bias, out=out) is out
    assert_close(out, x @ weight.t() + bias, 2e-5)


@pytest.mark.parametrize('batch', [1, 3])
def test_a_matrix_for_each_image(policy, batch):
    x, weight, bias = torch.randn(batch, 70, 12), torch.randn(batch, 9, 12), torch.randn(batch, 9)
    expected = torch.einsum('bnc,boc->bno', x, weight)
    assert_close(linear_per_image(x, weight), expected)
    assert_close(linear_per_image(x, weight, bias), expected + bias[:, None])
    a, b = torch.randn(batch, 70, 5), torch.randn(batch, 70, 12)
    assert_close(outer_sum_per_image(a, b), torch.einsum('bnp,bnq->bpq', a, b))


def test_the_operator_returns_the_strides_that_compilers_expect():
    x, weight = torch.randn(1, 32).expand(74, 32), torch.randn(64, 32)
    (out,), _ = torch.ops.mmbixt.linear(x, weight, None)
    assert out.is_contiguous()
    assert torch.allclose(out, x @ weight.t(), atol=1e-5)


def test_the_faster_library_is_measured():
    threads = torch.get_num_threads()
    assert 0.05 < operators.measured_gain(rounds=2) < 20
    assert torch.get_num_threads() == threads

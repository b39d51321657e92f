"""torch's layer norm as an operator that compilers do not replace.

Inductor (of torch 2.11) would generate code that is several times slower than torch's own kernels,
mainly the sums over the tokens in the backward pass.
"""

import torch
from torch import Tensor

from mmbixt.ops.cpu.operator import Operator, Results, like

aten = torch.ops.aten


def layer_norm_cpu(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return layer_norm(x.contiguous(), weight, bias, eps)[0]


def _forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Results:
    """Tokens (...,C) normed; the means and reciprocal deviations (...,1) are kept."""
    out, *moments = aten.native_layer_norm(x, x.shape[-1:], weight, bias, eps)
    return [out], moments


def _backward(grads, kept, x, weight, bias, eps) -> list[Tensor]:
    given = (grads[0].contiguous(), x, x.shape[-1:], *kept, weight, bias)
    return list(aten.native_layer_norm_backward(*given, [True, True, True]))


layer_norm = Operator(
    'layer_norm',
    _forward,
    _backward,
    fake=lambda x, *_: (like(x), like(x[..., :1], x[..., :1])),
    differentiable=('x', 'weight', 'bias'),
    flops=lambda *_: 0,
)

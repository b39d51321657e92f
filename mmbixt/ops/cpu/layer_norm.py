"""torch's layer norm, kept from compilers.

Inductor (of torch 2.11) takes it apart, and what it puts together is several times slower than
torch's own kernels, above all the sums over the tokens in the backward pass.
"""

import torch
from torch import Tensor

from mmbixt.ops.cpu.operator import differentiate, like, operator

aten = torch.ops.aten


def layer_norm_cpu(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """See :func:`mmbixt.ops.layer_norm`."""
    return layer_norm(x.contiguous(), weight, bias, eps)[0]


@operator(lambda x, weight, bias, eps: like(x, x[..., :1], x[..., :1]))
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> list[Tensor]:
    """Tokens (...,C) normed, and their means and reciprocal deviations (...,1)."""
    return list(aten.native_layer_norm(x, x.shape[-1:], weight, bias, eps))


@operator(lambda grad, x, mean, deviation, weight, bias: like(x, weight, bias))
def layer_norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, deviation: Tensor, weight: Tensor, bias: Tensor
) -> list[Tensor]:
    """The gradients of the tokens, the weight and the bias."""
    needed = [True, True, True]
    moments = (mean, deviation)
    return list(
        aten.native_layer_norm_backward(grad, x, x.shape[-1:], *moments, weight, bias, needed)
    )


def _save(inputs: tuple, output: list[Tensor]) -> tuple[tuple[Tensor, ...], None]:
    x, weight, bias, _ = inputs
    return (x, *output[1:], weight, bias), None


def _gradients(grads: list[Tensor], saved: tuple[Tensor, ...], *_) -> tuple[Tensor | None, ...]:
    return *layer_norm_backward(grads[0].contiguous(), *saved), None


differentiate(layer_norm, _save, _gradients)

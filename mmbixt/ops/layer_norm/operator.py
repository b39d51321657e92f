"""torch's layer norm, kept from compilers on CPUs.

Inductor (of torch 2.11) takes it apart, and what it puts together is several times slower than
torch's own kernels, above all the sums over the tokens in the backward pass.
"""

import torch
from torch import Tensor

from mmbixt.ops.layer_norm.reference import layer_norm_reference
from mmbixt.ops.paths import calls_operators, is_eager
from mmbixt.ops.precision import is_autocast

aten = torch.ops.aten


def pays(x: Tensor) -> bool:
    """On a CPU, under a compiler."""
    return (
        calls_operators()
        and not is_eager()
        and x.device.type == 'cpu'
        and x.dtype in (torch.float32, torch.float64)
        and not is_autocast(x)
    )


def layer_norm_as_it_is(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """See :func:`mmbixt.ops.layer_norm`."""
    if not pays(x):
        return layer_norm_reference(x, weight, bias, eps)
    return layer_norm_operator(x.contiguous(), weight, bias, eps)[0]


@torch.library.custom_op('mmbixt::layer_norm', mutates_args=(), device_types='cpu')
def layer_norm_operator(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> list[Tensor]:
    """Tokens (...,C) normed, and their means and reciprocal deviations (...,1)."""
    return list(aten.native_layer_norm(x, x.shape[-1:], weight, bias, eps))


@torch.library.custom_op('mmbixt::layer_norm_backward', mutates_args=(), device_types='cpu')
def layer_norm_gradients(
    grad: Tensor, x: Tensor, mean: Tensor, deviation: Tensor, weight: Tensor, bias: Tensor
) -> list[Tensor]:
    """Of the tokens, the weight and the bias."""
    wanted = [True, True, True]
    moments = (mean, deviation)
    return list(
        aten.native_layer_norm_backward(grad, x, x.shape[-1:], *moments, weight, bias, wanted)
    )


@layer_norm_operator.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> list[Tensor]:
    return [x.new_empty(x.shape), *(x.new_empty(*x.shape[:-1], 1) for _ in range(2))]


@layer_norm_gradients.register_fake
def _(grad: Tensor, x: Tensor, mean, deviation, weight: Tensor, bias: Tensor) -> list[Tensor]:
    return [t.new_empty(t.shape) for t in (x, weight, bias)]


def _keep(ctx, inputs: tuple, output: list[Tensor]) -> None:
    x, weight, bias, _ = inputs
    ctx.save_for_backward(x, *output[1:], weight, bias)


def _pass_back(ctx, grads: list[Tensor]) -> tuple[Tensor | None, ...]:
    return *layer_norm_gradients(grads[0].contiguous(), *ctx.saved_tensors), None


layer_norm_operator.register_autograd(_pass_back, setup_context=_keep)

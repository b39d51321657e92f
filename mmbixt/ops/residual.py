"""A residual connection with a layer scale, stochastic depth, or both, in one pass."""

import torch
from torch import Tensor

from mmbixt.ops.dispatch import operator_refusal


def add_scaled(x: Tensor, update: Tensor, factor: Tensor) -> Tensor:
    """``x + update * factor``, for tokens (...,C) and a factor that broadcasts to them."""
    compute = torch.addcmul if operator_refusal() else AddScaled.apply
    return compute(x, update, factor)


class AddScaled(torch.autograd.Function):
    """``addcmul``; the backward pass of torch's would first multiply the update by one."""

    @staticmethod
    def forward(ctx, x: Tensor, update: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(update if ctx.needs_input_grad[2] else None, factor)
        return torch.addcmul(x, update, factor)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        update, factor = ctx.saved_tensors
        grad_factor = None
        if ctx.needs_input_grad[2]:
            grad_factor = (grad * update).sum_to_size(factor.shape)
        return grad, grad * factor, grad_factor

"""How a function becomes an operator of torch's, which compilers call as it is.

Each operator of this package is two functions of tensors: the op, which returns what is to be kept
for the backward pass beside its results, and its gradients. Neither has autograd inside. The
gradients have no gradients of their own, so second derivatives raise an error.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.library import CustomOpDef


def operator(fake: Callable, device_types: str | None = 'cpu') -> Callable[[Callable], CustomOpDef]:
    """Register a function as ``mmbixt::NAME``.

    Args:
        fake: from the same arguments, empty tensors like the results. Sizes must come from
            ``shape``, never from ``len``, which would fix a size that is a symbol to a compiler.
        device_types: where it can run; None for anywhere.
    """

    def register(function: Callable) -> CustomOpDef:
        op = torch.library.custom_op(
            f'mmbixt::{function.__name__}', function, mutates_args=(), device_types=device_types
        )
        op.register_fake(fake)
        return op

    return register


def differentiate(op: CustomOpDef, save: Callable, gradients: Callable) -> None:
    """Give an operator its backward pass.

    Args:
        op: the operator.
        save: from its arguments and its results, the tensors to keep for the backward pass, and
            what else is to be kept.
        gradients: from the gradients of its results, those tensors, what else was kept, and a list
            that says for which arguments a gradient is needed, one gradient (or None) for each
            argument. The gradient of a result that nobody used is None.
    """

    def setup_context(ctx, inputs: tuple, output: Tensor | Sequence[Tensor]) -> None:
        ctx.set_materialize_grads(False)  # or what is kept would get gradients of zeros
        tensors, ctx.kept = save(inputs, output)
        ctx.save_for_backward(*tensors)

    def backward(ctx, grad: Tensor | Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        needed = list(ctx.needs_input_grad)
        if all(part is None for part in (grad if isinstance(grad, Sequence) else [grad])):
            return (None,) * len(needed)
        return tuple(gradients(grad, ctx.saved_tensors, ctx.kept, needed))

    op.register_autograd(backward, setup_context=setup_context)


def like(*tensors: Tensor) -> list[Tensor]:
    """Empty contiguous tensors of the same shapes."""
    return [x.new_empty(x.shape) for x in tensors]

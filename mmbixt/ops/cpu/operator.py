"""Operators of torch made from a function with its own backward pass.

In eager mode an operator is one function of autograd. Compilers, and modes that watch operations
(fake tensors, counters of FLOPs), get two operators instead, ``mmbixt::NAME`` and
``mmbixt::NAME_backward``: with these, autograd runs much more Python code than with a function.

The schema of an operator is flat. Named tuples are taken apart, and put together again, here only.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from itertools import islice

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from mmbixt.ops.dispatch import ADVICE, is_eager, is_transformed, needs_gradients

Results = tuple[list[Tensor], list[Tensor]]  # and tensors kept for the backward pass
_PLAIN = {Tensor, nn.Parameter, float, int, bool, type(None)}  # not: fake or distributed tensors


class Operator:
    """Tensors, numbers and named tuples of them to a list of tensors.

    Autograd does not look into ``forward`` and ``backward``. The latter has no derivatives, so
    second derivatives raise an error.

    Args:
        name: the operator is ``mmbixt::NAME``.
        forward: takes the arguments; returns the results and the tensors that are kept for the
            backward pass. Only its arguments need types.
        backward: takes the gradients of the results, the kept tensors and the arguments; returns
            the gradients of the arguments in ``differentiable`` that are not None.
        fake: as ``forward``, with empty tensors of the same shapes. Sizes must come from ``shape``,
            never from ``len``, which would make a symbolic size a constant.
        differentiable: names of arguments, or of fields of a named tuple.
        flops: the cost of ``forward``, from the arguments with shapes in place of tensors. As in
            torch, only products of matrices are counted, two for each multiply-add.
        backward_cost: cost of ``backward``, as a multiple of ``flops``.
        device_types: where it can run; None for anywhere.
        keeps_results: whether the results are also kept, after the other kept tensors. (``forward``
            cannot return them twice: no two results of an operator may share memory.)
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Results],
        backward: Callable[..., list[Tensor]],
        *,
        fake: Callable[..., Results],
        differentiable: Sequence[str],
        flops: Callable[..., int],
        backward_cost: float = 2,
        device_types: str | None = 'cpu',
        keeps_results: bool = False,
    ) -> None:
        self.name, self.forward, self.backward = name, forward, backward
        self.keeps_results = keeps_results
        self.kinds = [p.annotation for p in signature(forward).parameters.values()]
        flat = list(_flat_parameters(forward))
        self.differentiable = [i for i, p in enumerate(flat) if p.name in differentiable]

        def register(name: str, function: Callable, fake: Callable, parameters: list, out: type):
            function.__signature__ = Signature(parameters, return_annotation=out)
            op = torch.library.custom_op(
                f'mmbixt::{name}', function, mutates_args=(), device_types=device_types
            )
            op.register_fake(fake)
            return op

        op = register(
            name,
            lambda *flat: forward(*self._pack(flat)),
            lambda *flat: fake(*self._pack(flat)),
            flat,
            Results,
        )
        backward_op = register(
            f'{name}_backward',
            lambda grads, kept, *flat: backward(grads, kept, *self._pack(flat)),
            lambda grads, kept, *flat: like(
                *(flat[i] for i in self.differentiable if flat[i] is not None)
            ),
            [_parameter(part, list[Tensor]) for part in ('grads', 'kept')] + flat,
            list[Tensor],
        )
        op.register_autograd(
            lambda ctx, grads, kept: self._gradients(ctx, grads),
            setup_context=lambda ctx, inputs, output: self._save(ctx, inputs, self.kept(*output)),
        )
        backward_op.register_autograd(partial(_refuse, name))
        packets = (getattr(torch.ops.mmbixt, part) for part in (name, f'{name}_backward'))
        self.op, self.backward_op = (packet.default for packet in packets)
        register_flop_formula(self.op.overloadpacket)(lambda *flat, **_: flops(*self._pack(flat)))
        register_flop_formula(self.backward_op.overloadpacket)(
            lambda grads, kept, *flat, **_: int(backward_cost * flops(*self._pack(flat)))
        )

    def __call__(self, *arguments: object) -> list[Tensor]:
        """The results, without the kept tensors."""
        flat = [part for x in arguments for part in (x if isinstance(x, tuple) else (x,))]
        if not _runs_as_called(flat):
            return self.op(*flat)[0]
        if needs_gradients(*flat):
            return list(_Function.apply(self, *flat))
        return self.forward(*arguments)[0]

    def _pack(self, flat: Sequence) -> list:
        """The arguments of ``forward``."""
        parts = iter(flat)
        return [
            kind(*islice(parts, len(kind._fields))) if hasattr(kind, '_fields') else next(parts)
            for kind in self.kinds
        ]

    def kept(self, results: list[Tensor], kept: list[Tensor]) -> list[Tensor]:
        """The kept tensors for the backward pass, from the outputs of ``forward``."""
        return [*kept, *results] if self.keeps_results else kept

    def _save(self, ctx, flat: Sequence, kept: list[Tensor]) -> None:
        ctx.others = [None if isinstance(x, Tensor) else x for x in flat]
        ctx.save_for_backward(*kept, *(x if isinstance(x, Tensor) else None for x in flat))

    def _gradients(self, ctx, grads: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """One for each flat argument."""
        if is_transformed() or any(map(_is_batched, grads)):
            raise RuntimeError(
                f'The backward pass of mmbixt::{self.name} does not accept batches of gradients, '
                f'or tangents. {ADVICE}'
            )
        saved, count = ctx.saved_tensors, len(ctx.others)
        kept, tensors = saved[:-count], saved[-count:]
        flat = [x if x is not None else y for x, y in zip(tensors, ctx.others, strict=True)]
        # the operator raises an error if it is differentiated
        if torch.is_grad_enabled() or not _runs_as_called([*grads, *flat]):
            found = iter(self.backward_op(list(grads), list(kept), *flat))
        else:
            found = iter(self.backward(list(grads), list(kept), *self._pack(flat)))
        return tuple(
            next(found) if i in self.differentiable and x is not None else None
            for i, x in enumerate(flat)
        )


def _refuse(name: str, *_: object) -> None:
    raise RuntimeError(f'mmbixt::{name}_backward has no derivatives. {ADVICE}')


def _is_batched(x: Tensor) -> bool:
    """Whether it is a batch, as in ``torch.autograd.grad(..., is_grads_batched=True)``."""
    return isinstance(x, Tensor) and torch._C._functorch.is_legacy_batchedtensor(x)


class _Function(torch.autograd.Function):
    """An :class:`Operator` in eager mode, with its flat arguments."""

    @staticmethod
    def forward(ctx, operator: Operator, *flat: object) -> tuple[Tensor, ...]:
        results, kept = operator.forward(*operator._pack(flat))
        operator._save(ctx, flat, operator.kept(results, kept))
        ctx.operator = operator
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.operator._gradients(ctx, grads)


def _runs_as_called(flat: Sequence) -> bool:
    """Whether no mode watches operations, and all tensors are torch's own."""
    return (
        is_eager()
        and torch._C._len_torch_dispatch_stack() == 0
        and _PLAIN.issuperset(map(type, flat))
    )


def _flat_parameters(function: Callable) -> Iterator[Parameter]:
    """Its parameters, with the fields of a named tuple in its place."""
    for parameter in signature(function).parameters.values():
        kind = parameter.annotation
        is_tuple = hasattr(kind, '_fields')
        for name, type_ in (kind.__annotations__ if is_tuple else {parameter.name: kind}).items():
            yield _parameter(name, type_)


def _parameter(name: str, kind: type) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)


def like(*tensors: Tensor) -> list[Tensor]:
    """Empty contiguous tensors of the same shapes."""
    return [x.new_empty(x.shape) for x in tensors]

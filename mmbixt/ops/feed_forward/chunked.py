"""The MLP of a transformer block, a few hundred tokens at a time.

All steps are done on some tokens, whose hidden values stay in the cache of the processor, before
the next ones are touched. The scale is taken into the weights of the last layer.
The backward pass keeps the tokens and the hidden values before the GELU, and no others.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmbixt.ops.feed_forward.reference import feed_forward_reference
from mmbixt.ops.paths import is_eager
from mmbixt.ops.precision import is_autocast

HIDDEN_VALUES = 2**19  # of the tokens worked on together, for each thread: 2 MB in float32
aten = torch.ops.aten


def pays(x: Tensor) -> bool:
    """On a CPU, where memory is far and calls are cheap; compilers do better by themselves."""
    return (
        x.device.type == 'cpu'
        and x.dtype in (torch.float32, torch.float64)
        and not is_autocast(x)
        and is_eager()
        and x.is_contiguous()
    )


def tokens_at_a_time(fc1_weight: Tensor) -> int:
    return max(1, HIDDEN_VALUES * torch.get_num_threads() // len(fc1_weight))


class ChunkedFeedForward(torch.autograd.Function):
    """Tokens (N,C) to (N,C); the scale is in the last layer's weights."""

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        norm_weight: Tensor,
        norm_bias: Tensor,
        eps: float,
        fc1_weight: Tensor,
        fc1_bias: Tensor,
        fc2_weight: Tensor,
        fc2_bias: Tensor,
        residual: bool,
        keep: bool,
    ) -> Tensor:
        rows = tokens_at_a_time(fc1_weight)
        hidden = x.new_empty(len(x) if keep else min(rows, len(x)), len(fc1_weight))
        activated = hidden if not keep else x.new_empty(min(rows, len(x)), len(fc1_weight))
        out = torch.empty_like(x)
        statistics = []
        for start in range(0, len(x), rows):
            tokens = x[start : start + rows]
            normed, *moments = aten.native_layer_norm(
                tokens, tokens.shape[-1:], norm_weight, norm_bias, eps
            )
            statistics.append(moments)
            some = hidden[start : start + rows] if keep else hidden[: len(tokens)]
            torch.addmm(fc1_bias, normed, fc1_weight.t(), out=some)
            active = aten.gelu.out(some, out=activated[: len(tokens)])
            part = out[start : start + rows]
            torch.addmm(fc2_bias, active, fc2_weight.t(), out=part)
            if residual:
                part += tokens
        if keep:
            mean, rstd = (torch.cat(parts) for parts in zip(*statistics, strict=True))
            weights = (norm_weight, norm_bias, fc1_weight, fc2_weight)
            ctx.save_for_backward(x, mean, rstd, hidden, *weights)
            ctx.residual, ctx.eps = residual, eps
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, rstd, hidden, norm_weight, norm_bias, fc1_weight, fc2_weight = ctx.saved_tensors
        grad = grad.contiguous()
        rows = tokens_at_a_time(fc1_weight)
        grad_x = torch.empty_like(x)
        sums = {
            name: torch.zeros_like(like)
            for name, like in dict(
                norm_weight=norm_weight,
                norm_bias=norm_bias,
                fc1_weight=fc1_weight,
                fc1_bias=hidden[0],
                fc2_weight=fc2_weight,
                fc2_bias=x[0],
            ).items()
        }
        for start in range(0, len(x), rows):
            chunk = slice(start, start + rows)
            tokens, given, some = x[chunk], grad[chunk], hidden[chunk]
            moments = mean[chunk], rstd[chunk]
            sums['fc2_weight'].addmm_(given.t(), aten.gelu(some))
            sums['fc2_bias'] += given.sum(0)
            grad_hidden = aten.gelu_backward(given @ fc2_weight, some)
            normed = aten.native_layer_norm(
                tokens, tokens.shape[-1:], norm_weight, norm_bias, ctx.eps
            )[0]
            sums['fc1_weight'].addmm_(grad_hidden.t(), normed)
            sums['fc1_bias'] += grad_hidden.sum(0)
            grad_tokens, grad_norm_weight, grad_norm_bias = aten.native_layer_norm_backward(
                grad_hidden @ fc1_weight,
                tokens,
                tokens.shape[-1:],
                *moments,
                norm_weight,
                norm_bias,
                [True, True, True],
            )
            sums['norm_weight'] += grad_norm_weight
            sums['norm_bias'] += grad_norm_bias
            if ctx.residual:
                torch.add(grad_tokens, given, out=grad_x[chunk])
            else:
                grad_x[chunk] = grad_tokens
        return (
            grad_x,
            sums['norm_weight'],
            sums['norm_bias'],
            None,
            sums['fc1_weight'],
            sums['fc1_bias'],
            sums['fc2_weight'],
            sums['fc2_bias'],
            None,
            None,
        )


def feed_forward_chunked(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float,
    fc1_weight: Tensor,
    fc1_bias: Tensor,
    fc2_weight: Tensor,
    fc2_bias: Tensor,
    scale: Tensor | None = None,
    residual: bool = True,
) -> Tensor:
    """See :func:`mmbixt.ops.feed_forward`."""
    norm = (norm_weight, norm_bias, eps)
    if not pays(x):
        weights = (fc1_weight, fc1_bias, fc2_weight, fc2_bias)
        return feed_forward_reference(x, *norm, *weights, scale, residual)
    if scale is not None:
        fc2_weight, fc2_bias = scale[:, None] * fc2_weight, scale * fc2_bias
    weights = (fc1_weight, fc1_bias, fc2_weight, fc2_bias)
    # asked here, because autograd is off within; without it, all tokens share the hidden values
    keep = torch.is_grad_enabled()
    out = ChunkedFeedForward.apply(x.flatten(0, -2), *norm, *weights, residual, keep)
    return out.view_as(x)

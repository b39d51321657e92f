"""The MLP of a transformer block, a few hundred tokens at a time.

All steps are done on some tokens, whose hidden values stay in the cache of the processor, before
the next ones are touched. The scale is taken into the weights of the last layer.
The backward pass keeps the tokens and the hidden values before the GELU, and no others.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu, layer_norm

from mmbixt.ops.feed_forward.reference import feed_forward_reference
from mmbixt.ops.linear import linear, linear_gradients
from mmbixt.ops.paths import calls_operators, is_eager, needs_gradients
from mmbixt.ops.precision import is_autocast, is_half

HIDDEN_VALUES = 2**19  # of the tokens worked on together, for each thread: 2 MB in float32
aten = torch.ops.aten


def pays(x: Tensor) -> bool:
    """On a CPU, where memory is far and calls are cheap."""
    return (
        calls_operators()
        and x.device.type == 'cpu'
        and x.dtype in (torch.float32, torch.float64)
        and (is_eager() or not is_autocast(x))
        and x.is_contiguous()
        and x.numel() > 0
    )


@torch.compiler.assume_constant_result  # compilers cannot trace the number of threads
def tokens_at_a_time(width: int) -> int:
    """How many tokens have that many hidden values together, for this width of them."""
    return max(1, HIDDEN_VALUES * torch.get_num_threads() // width)


@torch.library.custom_op('mmbixt::feed_forward', mutates_args=(), device_types='cpu')
def feed_forward_of_rows(
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
    rows: int,
) -> list[Tensor]:
    """Tokens (N,C) to (N,C), ``rows`` at a time. An operator, so that compilers call it as it is.

    Returns:
        The result and, if asked to ``keep``, what the backward pass needs: of each piece the hidden
        values (n,hidden) before the GELU, and the mean and reciprocal deviation (n,1) of the norm.
    """
    out = torch.empty_like(x)
    kept = []
    for start in range(0, len(x), rows):
        tokens = x[start : start + rows]
        normed, *moments = aten.native_layer_norm(
            tokens, tokens.shape[-1:], norm_weight, norm_bias, eps
        )
        hidden = linear(normed, fc1_weight, fc1_bias)
        part = linear(gelu(hidden), fc2_weight, fc2_bias)
        if residual:
            torch.add(part, tokens, out=out[start : start + rows])
        else:
            out[start : start + rows] = part
        if keep:
            kept += [hidden, *moments]
    return [out, *kept]


@torch.library.custom_op('mmbixt::feed_forward_backward', mutates_args=(), device_types='cpu')
def feed_forward_backward(
    grad: Tensor,
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float,
    fc1_weight: Tensor,
    fc2_weight: Tensor,
    kept: list[Tensor],
    residual: bool,
) -> list[Tensor]:
    """The gradients of the tokens, then of the norm's and the layers' weights and biases."""
    grad_x = torch.empty_like(x)
    sums: list[Tensor] = []  # the gradients of the weights
    start = 0
    for hidden, *moments in zip(kept[::3], kept[1::3], kept[2::3], strict=True):
        chunk = slice(start, start := start + len(hidden))
        tokens, given = x[chunk], grad[chunk]
        grad_active, *of_fc2 = linear_gradients(given, gelu(hidden), fc2_weight)
        grad_hidden = aten.gelu_backward(grad_active, hidden)
        normed = aten.native_layer_norm(tokens, tokens.shape[-1:], norm_weight, norm_bias, eps)[0]
        grad_normed, *of_fc1 = linear_gradients(grad_hidden, normed, fc1_weight)
        grad_tokens, *of_norm = aten.native_layer_norm_backward(
            grad_normed,
            tokens,
            tokens.shape[-1:],
            *moments,
            norm_weight,
            norm_bias,
            [True, True, True],
        )
        if residual:
            torch.add(grad_tokens, given, out=grad_x[chunk])
        else:
            grad_x[chunk] = grad_tokens
        parts = [*of_norm, *of_fc1, *of_fc2]
        sums = [a.add_(b) for a, b in zip(sums, parts, strict=True)] if sums else parts
    return [grad_x, *sums]


@feed_forward_of_rows.register_fake
def _(x, norm_weight, norm_bias, eps, fc1_weight, *others) -> list[Tensor]:
    *_, keep, rows = others
    kept = []
    for start in range(0, len(x) if keep else 0, rows):
        tokens = min(rows, len(x) - start)
        kept += [x.new_empty(tokens, width) for width in (len(fc1_weight), 1, 1)]
    return [torch.empty_like(x), *kept]


@feed_forward_backward.register_fake
def _(grad, x, norm_weight, norm_bias, eps, fc1_weight, fc2_weight, *_) -> list[Tensor]:
    of_fc1, of_fc2 = ((torch.empty_like(w), w.new_empty(len(w))) for w in (fc1_weight, fc2_weight))
    return [*(torch.empty_like(t) for t in (x, norm_weight, norm_bias)), *of_fc1, *of_fc2]


class ChunkedFeedForward(torch.autograd.Function):
    """:func:`feed_forward_of_rows`, whose arguments it takes, with its backward pass."""

    @staticmethod
    def forward(ctx, *inputs: Tensor | float) -> Tensor:
        x, norm_weight, norm_bias, ctx.eps, fc1_weight, _, fc2_weight, _ = inputs[:8]
        ctx.residual, keep, _ = inputs[8:]
        out, *kept = feed_forward_of_rows(*inputs)
        if keep:
            ctx.save_for_backward(x, norm_weight, norm_bias, fc1_weight, fc2_weight, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, norm_weight, norm_bias, fc1_weight, fc2_weight, *kept = ctx.saved_tensors
        norm, weights = (norm_weight, norm_bias, ctx.eps), (fc1_weight, fc2_weight)
        of_x, of_norm_weight, of_norm_bias, *of_mlp = feed_forward_backward(
            grad.contiguous(), x, *norm, *weights, kept, ctx.residual
        )
        return of_x, of_norm_weight, of_norm_bias, None, *of_mlp, None, None, None


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
    if is_half(x):  # a small scale leaves little of a weight in float16
        weights = (fc1_weight, fc1_bias, fc2_weight, fc2_bias)
        return feed_forward_reference(x, *norm, *weights, scale, residual)
    if scale is not None:
        fc2_weight, fc2_bias = scale[:, None] * fc2_weight, scale * fc2_bias
    weights = (fc1_weight, fc1_bias, fc2_weight, fc2_bias)
    if not pays(x):
        normed = layer_norm(x, x.shape[-1:], *norm)
        out = linear(gelu(linear(normed, fc1_weight, fc1_bias)), fc2_weight, fc2_bias)
        return x + out if residual else out
    keep = needs_gradients(x, norm_weight, norm_bias, *weights)
    rows = tokens_at_a_time(len(fc1_weight))
    out = ChunkedFeedForward.apply(x.flatten(0, -2), *norm, *weights, residual, keep, rows)
    return out.view_as(x)

"""The operations between the matrix products of a transformer block, with the biases."""

from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from mmbixt.ops.dispatch import choose, implementations


def add_reference(
    x: Tensor, update: Tensor, bias: Tensor | None, scale: Tensor | None, kept: Tensor | None
) -> Tensor:
    """``x + kept * scale * (update + bias)``, see :func:`add_norm`."""
    if bias is not None:
        update = update + bias.to(update.dtype)  # as autocast does in the linear layer
    if scale is not None:
        update = update * scale
    if kept is not None:
        update = update * kept.view(-1, *[1] * (x.dim() - 1))
    return x + update


def add_norm_reference(
    x: Tensor,
    update: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    kept: Tensor | None,
    weight: Tensor,
    shift: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    out = add_reference(x, update, bias, scale, kept)
    return out, layer_norm(out, out.shape[-1:], weight, shift, eps).to(update.dtype)


def add_norm_triton(x: Tensor, update: Tensor, *others: Tensor | float | None):
    from mmbixt.ops.gpu.add_norm import AddNorm

    return AddNorm.apply(x.contiguous(), update.contiguous(), *others)


def bias_gelu_reference(x: Tensor, bias: Tensor) -> Tensor:
    return gelu(x + bias).to(x.dtype)


def bias_gelu_triton(x: Tensor, bias: Tensor) -> Tensor:
    from mmbixt.ops.gpu.bias_gelu import BiasGelu

    return BiasGelu.apply(x.contiguous(), bias)


_ADD_NORM = implementations(add_norm_reference, triton=add_norm_triton)
_BIAS_GELU = implementations(bias_gelu_reference, triton=bias_gelu_triton)


def add_norm(
    x: Tensor,
    update: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    kept: Tensor | None,
    weight: Tensor,
    shift: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """A residual connection, and the layer norm after it.

    Args:
        x: tokens (B,...,C).
        update: what is added to the tokens, of the same shape.
        bias: (C,) or None, of the linear layer that made the update.
        scale: a layer scale (C,) or None.
        kept: stochastic depth's factor of each image, (B,) or None; gets no gradient.
        weight, shift: (C,), of the norm.
        eps: of the norm.

    Returns:
        ``x + kept * scale * (update + bias)``, and its norm in the dtype of the update.
    """
    compute = choose('add_norm', _ADD_NORM, x)
    return compute(x, update, bias, scale, kept, weight, shift, eps)


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """``gelu(x + bias)``, of (...,C) and (C,), in the dtype of x."""
    return choose('bias_gelu', _BIAS_GELU, x)(x, bias)

"""What our operators cost, for torch's FlopCounterMode, which cannot look into them.

As torch does, products of matrices are counted, two for each multiply-add, and nothing else.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch.utils.flop_counter import register_flop_formula

Shape = Sequence[int]
ours = torch.ops.mmbixt


@register_flop_formula(ours.linear)
def linear(x: Shape, weight: Shape, *_, **__) -> int:
    return 2 * x[0] * prod(weight)


@register_flop_formula(ours.linear_backward)
def linear_backward(grad: Shape, x: Shape, weight: Shape, needed: list[bool], **_) -> int:
    return sum(needed[:2]) * linear(x, weight)


@register_flop_formula(ours.outer)
def outer(a: Shape, b: Shape, **_) -> int:
    return 2 * prod(a) * b[1]


@register_flop_formula(ours.feed_forward)
def feed_forward(x: Shape, norm_weight: Shape, norm_bias: Shape, eps, fc1: Shape, *_, **__) -> int:
    return 2 * linear(x, fc1)


@register_flop_formula(ours.feed_forward_backward)
def feed_forward_backward(grad: Shape, *given, **_) -> int:
    """Two products for each of the forward pass; what is given begins alike."""
    return 2 * feed_forward(*given)


@register_flop_formula(ours.bilinear_of_rows)
def bilinear(left: Shape, right: Shape, weight: Shape, **_) -> int:
    return 2 * left[0] * prod(weight)


@register_flop_formula(ours.bilinear_backward)
def bilinear_backward(grad: Shape, *given: Shape, **_) -> int:
    return 2 * bilinear(*given)


@register_flop_formula(ours.routed_attention)
def routed_attention(queries: Shape, keys: Shape, values: Shape, rows: Shape, *_, **__) -> int:
    tokens = queries[2]
    return 2 * (2 * prod(queries) * rows[1] * tokens)


@register_flop_formula(ours.routed_attention_backward)
def routed_attention_backward(grad: Shape, *given: Shape, **_) -> int:
    """Five products instead of two: the scores are computed again."""
    return 5 * routed_attention(*given) // 2


@register_flop_formula(ours.attend_in_windows)
def window_attention(qkv: Shape, v_hat: Shape | None, fill: Shape, token: Shape, *_, **__) -> int:
    """One product for the scores, one for each kind of values."""
    windows, places = token
    product = 2 * windows * places**2 * (qkv[1] // 3)
    return product * (2 if v_hat is None else 3)


@register_flop_formula(ours.attend_in_windows_backward)
def window_attention_backward(grads, attentions, *given: Shape, **_) -> int:
    """Two products for each of the forward pass."""
    return 2 * window_attention(*given)

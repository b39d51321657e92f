"""Channels of tokens to heads of attention, and back."""

from torch import Tensor


def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """(...,N,parts*h*d) to a tuple of ``parts`` tensors (...,h,N,d), such as q, k and v."""
    if parts == 1:
        return (x.unflatten(-1, (heads, -1)).transpose(-3, -2),)
    # split before transposing, so that the backward pass joins the gradients in one copy
    return tuple(part.transpose(-3, -2) for part in x.unflatten(-1, (parts, heads, -1)).unbind(-3))


def join_heads(x: Tensor) -> Tensor:
    """(...,h,N,d) to (...,N,h*d)."""
    return x.transpose(-3, -2).flatten(-2)


def head_width(channels: int, num_heads: int) -> int:
    """Channels d of a head; an error if the heads cannot share the channels equally."""
    if channels % num_heads:
        raise ValueError(f'{channels} channels cannot be split among {num_heads} heads.')
    return channels // num_heads

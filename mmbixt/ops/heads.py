"""The heads of tokens, side by side or one after another."""

from torch import Tensor


def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """(...,N,parts*h*d) to as many (...,h,N,d)."""
    if parts == 1:
        return (x.unflatten(-1, (heads, -1)).transpose(-3, -2),)
    # taken apart before they are transposed, so that their gradients are put together in one copy
    return tuple(part.transpose(-3, -2) for part in x.unflatten(-1, (parts, heads, -1)).unbind(-3))


def join_heads(x: Tensor) -> Tensor:
    """(...,h,N,d) to (...,N,h*d)."""
    return x.transpose(-3, -2).flatten(-2)


def head_width(channels: int, num_heads: int) -> int:
    """Channels of one of the heads that share all channels."""
    if channels % num_heads:
        raise ValueError(f'{channels} channels cannot be split among {num_heads} heads.')
    return channels // num_heads

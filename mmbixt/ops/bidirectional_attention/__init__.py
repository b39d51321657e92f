"""Attention in both directions through one similarity matrix (BiXT)."""

from torch import Tensor

from mmbixt.ops.bidirectional_attention.portable import bidirectional_attention_portable
from mmbixt.ops.bidirectional_attention.reference import (
    bidirectional_attention_maps,
    bidirectional_attention_reference,
)
from mmbixt.ops.dispatch import choose, implementations

__all__ = ['bidirectional_attention', 'bidirectional_attention_maps']

_PATHS = implementations(bidirectional_attention_reference, bidirectional_attention_portable)


def bidirectional_attention(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor | None, scale: float
) -> tuple[Tensor | None, Tensor]:
    """Latents attend to tokens and tokens to latents, with the same similarities.

    Args:
        r_latents: (B,h,M,d) or (1,h,M,d), which is shared by the batch.
        r_tokens: (B,h,N,d).
        v_latents: (B,h,M,d) or (1,h,M,d): what the tokens receive.
        v_tokens: (B,h,N,d): what the latents receive; None where the latents need no update.
        scale: factor of the similarities.

    Returns:
        The latents' update (B,h,M,d), or None without ``v_tokens``, and the tokens' (B,h,N,d).
    """
    attend = choose('bidirectional_attention', _PATHS, r_tokens)
    return attend(r_latents, r_tokens, v_latents, v_tokens, scale)

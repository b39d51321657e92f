"""Attention in both directions through one similarity matrix (BiXT)."""

from torch import Tensor

from mmbixt.ops.cpu.bidirectional_attention import bidirectional_attention_cpu
from mmbixt.ops.dispatch import choose, implementations
from mmbixt.ops.fused_attention import fused_attention


def bidirectional_attention_maps(
    r_latents: Tensor, r_tokens: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """The two attention matrices, both (B,h,M,N).

    The first sums to one over the tokens (attention of each latent), the second over the latents
    (attention of each token).
    """
    similarity = scale * r_latents @ r_tokens.transpose(-2, -1)
    return similarity.softmax(dim=-1), similarity.softmax(dim=-2)


def bidirectional_attention_reference(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor | None, scale: float
) -> tuple[Tensor | None, Tensor]:
    over_tokens, over_latents = bidirectional_attention_maps(r_latents, r_tokens, scale)
    update = None if v_tokens is None else over_tokens @ v_tokens
    return update, over_latents.transpose(-2, -1) @ v_latents


def bidirectional_attention_portable(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor | None, scale: float
) -> tuple[Tensor | None, Tensor]:
    """Two fused attentions: the similarities are computed twice, but never stored.

    Computing them again (d multiply-adds each) takes less time than writing an (M,N) matrix to
    memory, reading it for two softmaxes and keeping it for the backward pass.
    """
    r, v = (x.expand(r_tokens.shape[0], -1, -1, -1) for x in (r_latents, v_latents))
    update = None
    if v_tokens is not None:
        update = fused_attention(r, r_tokens, v_tokens, scale)
    return update, fused_attention(r_tokens, r, v, scale)


_PATHS = implementations(
    bidirectional_attention_reference,
    bidirectional_attention_portable,
    bidirectional_attention_cpu,
)


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
    attend = choose('bidirectional_attention', _PATHS, r_tokens, r_latents)
    return attend(r_latents, r_tokens, v_latents, v_tokens, scale)

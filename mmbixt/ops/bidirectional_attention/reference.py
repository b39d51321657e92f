"""The definition: one similarity matrix, a softmax along each of its axes."""

from torch import Tensor


def bidirectional_attention_maps(
    r_latents: Tensor, r_tokens: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """The two attention matrices, both (B,h,M,N).

    The first sums to one over the tokens (how a latent reads the image), the second over the
    latents (how a token reads the latents).
    """
    similarity = scale * r_latents @ r_tokens.transpose(-2, -1)
    return similarity.softmax(dim=-1), similarity.softmax(dim=-2)


def bidirectional_attention_reference(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor | None, scale: float
) -> tuple[Tensor | None, Tensor]:
    over_tokens, over_latents = bidirectional_attention_maps(r_latents, r_tokens, scale)
    update = None if v_tokens is None else over_tokens @ v_tokens
    return update, over_latents.transpose(-2, -1) @ v_latents

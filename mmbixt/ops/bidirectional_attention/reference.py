"""The definition: one similarity matrix, a softmax along each of its axes."""

from typing import NamedTuple

from torch import Tensor


class Side(NamedTuple):
    """Latents or tokens, (B,h,...,d).

    Attributes:
        r: what similarities are computed from.
        v: what the other side receives; None where that needs no update.
    """

    r: Tensor
    v: Tensor | None


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
    latents: Side, tokens: Side, scale: float
) -> tuple[Tensor | None, Tensor]:
    """See :func:`mmbixt.ops.bidirectional_attention`."""
    over_tokens, over_latents = bidirectional_attention_maps(latents.r, tokens.r, scale)
    update = None if tokens.v is None else over_tokens @ tokens.v
    return update, over_latents.transpose(-2, -1) @ latents.v

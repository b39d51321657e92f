"""Two fused attentions: the similarities are computed twice, but never stored."""

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def bidirectional_attention_portable(
    r_latents: Tensor,
    r_tokens: Tensor,
    v_latents: Tensor,
    v_tokens: Tensor | None,
    scale: float,
) -> tuple[Tensor | None, Tensor]:
    """See :func:`mmbixt.ops.bidirectional_attention`.

    The product of the two ``r`` is cheap (d channels a head) beside writing an (M,N) matrix to
    memory, reading it for two softmaxes and keeping it for the backward pass.
    """
    shape = (r_tokens.shape[0], -1, -1, -1)
    r_latents, v_latents = r_latents.expand(shape), v_latents.expand(shape)
    latents = None
    if v_tokens is not None:
        latents = scaled_dot_product_attention(r_latents, r_tokens, v_tokens, scale=scale)
    return latents, scaled_dot_product_attention(r_tokens, r_latents, v_latents, scale=scale)

"""Two fused attentions: the similarities are computed twice, but never stored."""

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def bidirectional_attention_portable(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor | None, scale: float
) -> tuple[Tensor | None, Tensor]:
    """The product of the two ``r`` is cheap (d channels a head) beside writing an (M,N) matrix to
    memory, reading it for two softmaxes and keeping it for the backward pass.
    """
    r, v = (x.expand(len(r_tokens), -1, -1, -1) for x in (r_latents, v_latents))
    update = None
    if v_tokens is not None:
        update = scaled_dot_product_attention(r, r_tokens, v_tokens, scale=scale)
    return update, scaled_dot_product_attention(r_tokens, r, v, scale=scale)

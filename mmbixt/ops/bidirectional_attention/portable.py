"""Two fused attentions: the similarities are computed twice, but never stored."""

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mmbixt.ops.bidirectional_attention.reference import Side


def bidirectional_attention_portable(
    latents: Side, tokens: Side, scale: float
) -> tuple[Tensor | None, Tensor]:
    """See :func:`mmbixt.ops.bidirectional_attention`.

    The product of the two ``r`` is cheap (d channels a head) beside writing an (M,N) matrix to
    memory, reading it for two softmaxes and keeping it for the backward pass.
    """
    shape = (tokens.r.shape[0], -1, -1, -1)
    r, v = latents.r.expand(shape), latents.v.expand(shape)
    update = None
    if tokens.v is not None:
        update = scaled_dot_product_attention(r, tokens.r, tokens.v, scale=scale)
    return update, scaled_dot_product_attention(tokens.r, r, v, scale=scale)

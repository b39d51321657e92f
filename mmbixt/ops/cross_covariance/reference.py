"""The definition: queries, keys and values of each token, normalised over the tokens."""

from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import linear, normalize


def project(x: Tensor, weight: Tensor, bias: Tensor | None, heads: int) -> tuple[Tensor, ...]:
    """Tokens (B,N,C) to queries, keys and values, (B,h,d,N) each."""
    return linear(x, weight, bias).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 4, 1).unbind(0)


def cross_covariance_maps(queries: Tensor, keys: Tensor, temperature: Tensor) -> Tensor:
    """How the channels of a head attend to each other, (B,h,d,d): each row sums to one."""
    correlation = normalize(queries, dim=-1) @ normalize(keys, dim=-1).transpose(-2, -1)
    return (correlation * temperature).softmax(dim=-1)


def cross_covariance_attention_reference(
    x: Tensor,
    qkv_weight: Tensor,
    qkv_bias: Tensor | None,
    temperature: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    dropout: float = 0.0,
    scale: Tensor | None = None,
) -> Tensor:
    """See :func:`mmbixt.ops.cross_covariance_attention`."""
    queries, keys, values = project(x, qkv_weight, qkv_bias, heads=len(temperature))
    attention = drop(cross_covariance_maps(queries, keys, temperature), dropout)
    out = (attention @ values).permute(0, 3, 1, 2).flatten(2)
    out = linear(out, proj_weight, proj_bias)
    return out if scale is None else scale * out

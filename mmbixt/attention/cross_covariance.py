"""Cross-covariance attention: over channels instead of tokens (XCiT).

For queries, keys and values q, k and v (d,N) of a head::

    q_hat = q / |q|,  k_hat = k / |k|                   each row has length one over the tokens
    out = softmax(temperature * q_hat k_hat^T) v        (d,d) times (d,N)

The cost is linear in the tokens, and no weight depends on their number.

The implementation multiplies queries and keys by themselves and each other in one product, whose
diagonal has the squares of the norms, and divides ``q k^T`` by the norms: this copies neither.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from mmbixt.layers.definition import is_by_definition
from mmbixt.layers.precision import half_dtype
from mmbixt.layers.softmax_attention import head_width


def split_channels(qkv: Tensor, heads: int) -> tuple[Tensor, ...]:
    """(B,N,3C) to queries, keys and values, (B,h,d,N) each."""
    return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 4, 1).unbind(0)


def cross_covariance_maps(
    queries: Tensor, keys: Tensor, temperature: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """q_hat and k_hat (B,h,d,N), and the attention (B,h,d,d) of each channel, which sums to one."""
    q_hat, k_hat = (normalize(x, dim=-1) for x in (queries, keys))
    return q_hat, k_hat, (temperature * q_hat @ k_hat.transpose(-2, -1)).softmax(dim=-1)


def cross_covariance_definition(qkv: Tensor, temperature: Tensor) -> Tensor:
    """:func:`cross_covariance` by the equations above."""
    queries, keys, values = split_channels(qkv, len(temperature))
    attention = cross_covariance_maps(queries, keys, temperature)[2]
    return (attention @ values).permute(0, 3, 1, 2).flatten(2)


def cross_covariance(qkv: Tensor, temperature: Tensor) -> Tensor:
    """The channels of a head attend to each other by their cosine over all tokens.

    Images and heads are one dimension: inductor (of torch 2.11) treats tensors (B,h,d,d) as feature
    maps, stores them channels-last next to convolutions, and then writes past their ends.

    Args:
        qkv: queries, keys and values (B,N,3C).
        temperature: (h,1,1), factor of the cosines of each head.

    Returns:
        (B,N,C).
    """
    # products over all tokens overflow float16
    if is_by_definition() or half_dtype(qkv) == torch.float16:
        return cross_covariance_definition(qkv, temperature)
    batch, heads = qkv.shape[0], len(temperature)
    queries_keys, values = qkv.unflatten(-1, (3, heads, -1)).split((2, 1), 2)
    d = qkv.shape[-1] // (3 * heads)
    queries_keys = queries_keys.permute(0, 3, 2, 4, 1).flatten(2, 3).flatten(0, 1)  # (Bh,2d,N)
    wide = torch.promote_types(qkv.dtype, torch.float32)
    moments = (queries_keys @ queries_keys.transpose(1, 2)).to(wide)
    products = moments[:, :d, d:]  # (Bh,d,d)
    # norms are at least 1e-12, as in torch.nn.functional.normalize
    query_norms, key_norms = (
        x.clamp_min(1e-24).sqrt() for x in moments.diagonal(dim1=1, dim2=2).chunk(2, 1)
    )
    cosines = products / (query_norms[:, :, None] * key_norms[:, None, :])
    attention = (cosines * temperature.repeat(batch, 1, 1)).softmax(dim=-1).to(values.dtype)
    out = attention @ values.permute(0, 2, 3, 4, 1).flatten(0, 2)  # (Bh,d,N)
    return out.unflatten(0, (batch, heads)).permute(0, 3, 1, 2).flatten(2)


class CrossCovarianceAttention(nn.Module):
    """XCiT's attention: the channels of a head attend to each other by their cosine.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; channels attend to those of their own head.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        head_width(channels, num_heads)  # raises an error if the heads cannot share the channels
        self.num_heads = num_heads
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,N,C) to (B,N,C)."""
        return self.proj(cross_covariance(self.qkv(tokens), self.temperature))

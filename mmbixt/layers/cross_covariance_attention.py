import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from mmbixt.layers.as_built import is_as_built
from mmbixt.ops.cross_covariance import cross_covariance, cross_covariance_attention, split_channels
from mmbixt.ops.heads import head_width


class CrossCovarianceAttention(nn.Module):
    """XCiT's attention: the channels of a head attend to each other by their cosine.

    For queries, keys and values q, k and v (d,N) of a head::

        q_hat = q / |q|, k_hat = k / |k|            each row has length one over the tokens
        softmax(temperature * q_hat k_hat^T) v      (d,d) times (d,N)

    The cost is linear in the tokens, and no weight depends on their number.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; channels attend to those of their own head.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        head_width(channels, num_heads)  # raises an error if the heads cannot share the channels
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, tokens: Tensor, scale: Tensor | None = None) -> Tensor:
        """(B,N,C) to (B,N,C), times a layer scale (C,) if one is given."""
        if not self._is_fused(tokens.shape[-1]):
            out = self.proj(cross_covariance(self.qkv(tokens), self.temperature))
            return out if scale is None else scale * out
        qkv, proj = ((layer.weight, layer.bias) for layer in (self.qkv, self.proj))
        return cross_covariance_attention(tokens, *qkv, self.temperature, *proj, scale)

    def _is_fused(self, channels: int) -> bool:
        """Whether the weights may be used directly, and have the shapes that were built."""
        if not (is_as_built(self.qkv, nn.Linear) and is_as_built(self.proj, nn.Linear)):
            return False
        shapes = (tuple(self.qkv.weight.shape), tuple(self.proj.weight.shape))
        is_whole = shapes == ((3 * channels, channels), (channels, channels))
        return is_whole and self.proj.bias is not None

    def normalised_queries_and_keys(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """For pictures: queries and keys of length one over the tokens, (B,h,d,N) each."""
        queries, keys, _ = split_channels(self.qkv(tokens), len(self.temperature))
        return normalize(queries, dim=-1), normalize(keys, dim=-1)

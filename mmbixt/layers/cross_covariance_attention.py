import torch
from torch import Tensor, nn

from mmbixt.layers.as_built import is_as_built
from mmbixt.ops.cross_covariance import (
    cross_covariance,
    cross_covariance_attention,
    cross_covariance_maps,
    split_channels,
)


class CrossCovarianceAttention(nn.Module):
    """XCiT's attention: between the channels of a head, by their correlation over the tokens.

    The cost is linear in the tokens, and no weight depends on their number.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; channels attend to those of their own head.
        qkv_bias: whether queries, keys and values have a bias.
        dropout: rate of attention weights that are dropped in training.
    """

    def __init__(
        self, channels: int, num_heads: int, qkv_bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if channels % num_heads:
            raise ValueError(f'{channels} channels cannot be split among {num_heads} heads.')
        self.dropout = dropout
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.qkv = nn.Linear(channels, 3 * channels, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)

    def forward(self, tokens: Tensor, scale: Tensor | None = None) -> Tensor:
        """(B,N,C) to (B,N,C), times a layer scale (C,) if one is given."""
        dropout = self.dropout if self.training else 0.0
        if not (is_as_built(self.qkv, nn.Linear) and is_as_built(self.proj, nn.Linear)):
            out = self.proj(cross_covariance(self.qkv(tokens), self.temperature, dropout))
            return out if scale is None else scale * out
        qkv, proj = ((layer.weight, layer.bias) for layer in (self.qkv, self.proj))
        return cross_covariance_attention(tokens, *qkv, self.temperature, *proj, dropout, scale)

    def attention_maps(self, tokens: Tensor) -> Tensor:
        """How the channels of each head attend to each other, (B,h,d,d): for pictures."""
        queries, keys, _ = split_channels(self.qkv(tokens), len(self.temperature))
        return cross_covariance_maps(queries, keys, self.temperature)

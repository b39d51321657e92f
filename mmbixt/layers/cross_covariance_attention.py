import torch
from torch import Tensor, nn

from mmbixt.ops.cross_covariance import cross_covariance_attention


class CrossCovarianceAttention(nn.Module):
    """XCiT's attention: between the channels of a head, by their correlation over the tokens.

    The cost is linear in the tokens, and so are the weights of any grid: nothing depends on N.

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
        return cross_covariance_attention(
            tokens,
            self.qkv.weight,
            self.qkv.bias,
            self.temperature,
            self.proj.weight,
            self.proj.bias,
            self.dropout if self.training else 0.0,
            scale,
        )

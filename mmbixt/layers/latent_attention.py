from torch import Tensor, nn

from mmbixt.layers.linear import apply_linear
from mmbixt.ops.heads import head_width, join_heads, split_heads
from mmbixt.ops.inverse_attention import self_attention


class LatentAttention(nn.Module):
    """BiXT's one-sided cross-attention: the latents attend to the tokens, which stay as they are.

    Args:
        channels: width C of latents and tokens.
        num_heads: heads h; d = C / h.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.r_latents = nn.Linear(channels, channels)
        self.rv_patches = nn.Linear(channels, 2 * channels)
        self.proj_lat = nn.Linear(channels, channels)

    def forward(self, latents: Tensor, tokens: Tensor) -> Tensor:
        """Latents (B,M,C) and tokens (B,N,C) to the update of the latents (B,M,C)."""
        (r_latents,) = split_heads(apply_linear(self.r_latents, latents), 1, self.num_heads)
        r_tokens, v_tokens = split_heads(apply_linear(self.rv_patches, tokens), 2, self.num_heads)
        out = self_attention(r_latents, r_tokens, v_tokens, self.scale)
        return apply_linear(self.proj_lat, join_heads(out))

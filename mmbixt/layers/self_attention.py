from torch import Tensor, nn

from mmbixt.layers.fused_attention import attention_scores, fused_attention
from mmbixt.layers.heads import head_width, join_heads, split_heads


class SelfAttention(nn.Module):
    """Attention of all tokens over all tokens: ``proj(softmax(q k^T / sqrt(d)) v)``.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; d = C / h.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,N,C) to (B,N,C)."""
        return self.proj(self._attend(tokens, tokens.shape[1]))

    def _attend(self, tokens: Tensor, queries: int) -> Tensor:
        """The first tokens attend to all: (B,N,C) to (B,queries,C), before the projection."""
        q, k, v = split_heads(self.qkv(tokens), 3, self.num_heads)
        return join_heads(fused_attention(q[:, :, :queries], k, v, self.scale))


class ClassAttention(SelfAttention):
    """Attention of only the class token, over itself and all tokens (CaiT, XCiT)."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,1+N,C), the class token first, to the class token's update (B,1,C)."""
        return self.proj(self._attend(tokens, 1))

    def attention_maps(self, tokens: Tensor) -> Tensor:
        """For pictures: tokens (B,1+N,C) to the attention of the class token, (B,h,1+N)."""
        q, k, _ = split_heads(self.qkv(tokens), 3, self.num_heads)
        return attention_scores(q[:, :, :1], k, self.scale).softmax(dim=-1).squeeze(2)

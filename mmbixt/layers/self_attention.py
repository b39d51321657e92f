from torch import Tensor, nn

from mmbixt.layers.linear import apply_linear
from mmbixt.ops.heads import head_width, join_heads, split_heads
from mmbixt.ops.inverse_attention import self_attention


class SelfAttention(nn.Module):
    """Attention of all tokens over all tokens, by :func:`mmbixt.ops.self_attention`.

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
        return apply_linear(self.proj, self.attend(tokens, tokens.shape[1]))

    def attend(self, tokens: Tensor, queries: int) -> Tensor:
        """The first tokens attend to all: (B,N,C) to (B,queries,C), before the projection."""
        q, k, v = split_heads(apply_linear(self.qkv, tokens), 3, self.num_heads)
        return join_heads(self_attention(q[:, :, :queries], k, v, self.scale))


class ClassAttention(SelfAttention):
    """Attention of only the class token, over itself and all tokens (CaiT, XCiT)."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,1+N,C), the class token first, to the class token's update (B,1,C)."""
        return apply_linear(self.proj, self.attend(tokens, 1))

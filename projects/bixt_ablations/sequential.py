"""Attention in both directions, one after the other (the sequential variant of BiXT's Table 1a).

For each head, with latents (M,d) and tokens (N,d), each with its own queries q, keys k, values v::

    A = softmax(q_latents k_tokens^T / sqrt(d), over tokens)      (M,N)
    latents' update = A v_tokens                                  (M,d)
    B = softmax(q_tokens k_latents^T / sqrt(d), over latents)     (N,M)
    tokens' update = B v_latents                                  (N,d)

The first attention gives the updated latents, from which k_latents and v_latents are computed. The
two matrices have nothing in common, unlike those of :mod:`mmbixt.attention.bidirectional`.
"""

from torch import Tensor, nn

from mmbixt.layers.softmax_attention import (
    fused_attention,
    head_width,
    join_heads,
    split_heads,
)


class SequentialAttention(nn.Module):
    """Latents attend to the tokens, then the tokens to the latents with their update.

    The paper gives the order and the number of projections, six for q, k and v. Open is what
    k_latents and v_latents are computed from: here from the attention's input (in a block after
    its norm) plus its projected update. With another norm in between, a classifier of 11 layers
    would have more than the paper's 14.60 M parameters.

    Args:
        channels: width C of latents and tokens.
        num_heads: heads h; d = C / h.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.q_latents = nn.Linear(channels, channels)
        self.kv_latents = nn.Linear(channels, 2 * channels)
        self.qkv_patches = nn.Linear(channels, 3 * channels)
        self.proj_lat = nn.Linear(channels, channels)
        self.proj_pat = nn.Linear(channels, channels)

    def forward(self, latents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) to the updates of both, of batch B."""
        q_tokens, k_tokens, v_tokens = split_heads(self.qkv_patches(tokens), 3, self.num_heads)
        for_latents = self._update_latents(latents, k_tokens, v_tokens)
        k_latents, v_latents = self._split_latents(latents + for_latents)
        out = fused_attention(q_tokens, k_latents, v_latents, self.scale)
        return for_latents, self.proj_pat(join_heads(out))

    def _queries(self, latents: Tensor, batch: int) -> Tensor:
        (q_latents,) = split_heads(self.q_latents(latents), 1, self.num_heads)
        return q_latents.expand(batch, -1, -1, -1)

    def _split_latents(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        return split_heads(self.kv_latents(latents), 2, self.num_heads)

    def _update_latents(self, latents: Tensor, k_tokens: Tensor, v_tokens: Tensor) -> Tensor:
        q_latents = self._queries(latents, k_tokens.shape[0])
        return self.proj_lat(join_heads(fused_attention(q_latents, k_tokens, v_tokens, self.scale)))

"""Attention in both directions through one similarity matrix (BiXT).

For each head, with latents (M,d) and tokens (N,d), each with reference vectors r and values v::

    S = r_latents r_tokens^T / sqrt(d)                      (M,N)
    latents' update = softmax(S, over tokens) v_tokens      (M,d)
    tokens' update = softmax(S^T, over latents) v_latents   (N,d)

The implementation computes S twice, in two fused attentions, and never stores it: this takes less
time than writing and reading an (M,N) matrix, and no memory for the backward pass.
"""

from torch import Tensor, nn

from mmbixt.layers.definition import is_by_definition
from mmbixt.layers.softmax_attention import (
    attention_scores,
    fused_attention,
    head_width,
    join_heads,
    split_heads,
)


def bidirectional_attention_maps(
    r_latents: Tensor, r_tokens: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """The two attention matrices, both (B,h,M,N).

    The first sums to one over the tokens (attention of each latent), the second over the latents
    (attention of each token).
    """
    S = attention_scores(r_latents, r_tokens, scale)
    return S.softmax(dim=-1), S.softmax(dim=-2)


def bidirectional_attention_definition(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor | None, scale: float
) -> tuple[Tensor | None, Tensor]:
    """:func:`bidirectional_attention` by the equations above."""
    over_tokens, over_latents = bidirectional_attention_maps(r_latents, r_tokens, scale)
    update = None if v_tokens is None else over_tokens @ v_tokens
    return update, over_latents.transpose(-2, -1) @ v_latents


def bidirectional_attention(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor | None, scale: float
) -> tuple[Tensor | None, Tensor]:
    """Latents attend to tokens and tokens to latents, with the same similarities.

    Args:
        r_latents: (B,h,M,d) or (1,h,M,d), which is shared by the batch.
        r_tokens: (B,h,N,d).
        v_latents: (B,h,M,d) or (1,h,M,d): what the tokens receive.
        v_tokens: (B,h,N,d): what the latents receive; None where the latents need no update.
        scale: factor of the similarities.

    Returns:
        The latents' update (B,h,M,d), or None without ``v_tokens``, and the tokens' (B,h,N,d).
    """
    if is_by_definition():
        vectors = (r_latents, r_tokens, v_latents, v_tokens)
        return bidirectional_attention_definition(*vectors, scale)
    r, v = (x.expand(r_tokens.shape[0], -1, -1, -1) for x in (r_latents, v_latents))
    update = None if v_tokens is None else fused_attention(r, r_tokens, v_tokens, scale)
    return update, fused_attention(r_tokens, r, v, scale)


class BidirectionalAttention(nn.Module):
    """BiXT's cross-attention: latents and tokens attend to each other through one matrix.

    Each side has one projection ``rv``: its first half gives the reference vectors r, its second
    half the values v for the other side.

    Args:
        channels: width C of latents and tokens.
        num_heads: heads h; d = C / h.
        update_latents: False leaves out the latents' update and its output projection, for a layer
            whose latents are not used.
    """

    def __init__(self, channels: int, num_heads: int, update_latents: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.rv_latents = nn.Linear(channels, 2 * channels)
        self.rv_patches = nn.Linear(channels, 2 * channels)
        self.proj_lat = nn.Linear(channels, channels) if update_latents else None
        self.proj_pat = nn.Linear(channels, channels)

    def forward(self, latents: Tensor, tokens: Tensor) -> tuple[Tensor | None, Tensor]:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) to the updates of both.

        The latents' update is None without ``update_latents``.
        """
        r_latents, v_latents = split_heads(self.rv_latents(latents), 2, self.num_heads)
        r_tokens, v_tokens = split_heads(self.rv_patches(tokens), 2, self.num_heads)
        values = v_latents, None if self.proj_lat is None else v_tokens
        updates = bidirectional_attention(r_latents, r_tokens, *values, self.scale)
        for_latents, for_tokens = (None if x is None else join_heads(x) for x in updates)
        if for_latents is not None:
            for_latents = self.proj_lat(for_latents)
        return for_latents, self.proj_pat(for_tokens)


class LatentAttention(nn.Module):
    """BiXT's one-sided cross-attention: the latents attend to the tokens, which do not change.

    For each head: ``latents' update = softmax(r_latents r_tokens^T / sqrt(d)) v_tokens``.

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
        (r_latents,) = split_heads(self.r_latents(latents), 1, self.num_heads)
        r_tokens, v_tokens = split_heads(self.rv_patches(tokens), 2, self.num_heads)
        out = fused_attention(r_latents, r_tokens, v_tokens, self.scale)
        return self.proj_lat(join_heads(out))

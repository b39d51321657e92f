from torch import Tensor, nn

from mmbixt.layers.as_built import is_as_built
from mmbixt.layers.linear import apply_linear
from mmbixt.ops.bidirectional_attention import bidirectional_attention, bidirectional_attention_maps
from mmbixt.ops.heads import head_width, join_heads, split_heads
from mmbixt.ops.inverse_attention import self_attention
from mmbixt.ops.linear import linear


class BidirectionalAttention(nn.Module):
    """BiXT's cross-attention: latents and tokens attend to each other through one matrix.

    Each side has one projection ``rv``. Its first half gives the *reference* vectors r, whose
    products are the similarities of latents and tokens; its second half gives the values v for the
    other side. For each head::

        S = r_latents r_tokens^T / sqrt(d)                      (M,N)
        latents' update = softmax(S, over tokens) v_tokens      (M,d)
        tokens' update = softmax(S^T, over latents) v_latents   (N,d)

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
        for_latents, for_tokens = self.attend(latents, tokens)
        if for_latents is not None:
            for_latents = apply_linear(self.proj_lat, for_latents)
        return for_latents, apply_linear(self.proj_pat, for_tokens)

    def attend(self, latents: Tensor, tokens: Tensor) -> tuple[Tensor | None, Tensor]:
        """The updates before their output projections."""
        parts = (2, self.num_heads)
        r_latents, v_latents = split_heads(apply_linear(self.rv_latents, latents), *parts)
        if self.proj_lat is None:
            r_tokens, v_tokens = self._reference_vectors(self.rv_patches, tokens), None
        else:
            r_tokens, v_tokens = split_heads(apply_linear(self.rv_patches, tokens), *parts)
        for_latents, for_tokens = bidirectional_attention(
            r_latents, r_tokens, v_latents, v_tokens, self.scale
        )
        for_latents = None if for_latents is None else join_heads(for_latents)
        return for_latents, join_heads(for_tokens)

    def attention_maps(self, latents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Both attention matrices (B,h,M,N), over the tokens and over the latents: for pictures."""
        r_latents = self._reference_vectors(self.rv_latents, latents)
        r_tokens = self._reference_vectors(self.rv_patches, tokens)
        return bidirectional_attention_maps(r_latents, r_tokens, self.scale)

    def _reference_vectors(self, rv: nn.Module, x: Tensor) -> Tensor:
        """The ``r`` half of a projection alone, (B,h,N,d)."""
        if not is_as_built(rv, nn.Linear):
            return split_heads(rv(x), 2, self.num_heads)[0]
        weight, bias = rv.weight.chunk(2)[0], None if rv.bias is None else rv.bias.chunk(2)[0]
        return split_heads(linear(x, weight, bias), 1, self.num_heads)[0]


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
        (r_latents,) = split_heads(apply_linear(self.r_latents, latents), 1, self.num_heads)
        r_tokens, v_tokens = split_heads(apply_linear(self.rv_patches, tokens), 2, self.num_heads)
        out = self_attention(r_latents, r_tokens, v_tokens, self.scale)
        return apply_linear(self.proj_lat, join_heads(out))

"""The layers of BiXT: bidirectional and one-sided cross-attention, self-attention, LPI.

The names of the weights are the authors'.
"""

from typing import NamedTuple

from torch import Tensor, nn

from mmbixt.attention import BidirectionalAttention, LatentAttention
from mmbixt.layers import DropPath, LayerScale, LocalPatchInteraction, Mlp, SelfAttention
from mmbixt.layers.initialise import init_lecun_normal


class Sizes(NamedTuple):
    """Of a layer.

    Attributes:
        channels: width of latents and tokens.
        num_heads: of its attentions.
        hidden: width of its MLPs between their two layers.
        scale: initial value of its layer scales; None for no layer scale.
        drop_path: rate of stochastic depth.
    """

    channels: int
    num_heads: int
    hidden: int
    scale: float | None
    drop_path: float = 0.0


class SelfAttentionBlock(nn.Module):
    """Of the latents: ``x + attention(norm(x))``, then ``x + mlp(norm(x))``."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        channels, num_heads, hidden, scale, drop_path = sizes
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = SelfAttention(channels, num_heads)
        self.ls1 = make_layer_scale(channels, scale)
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Mlp(channels, hidden)
        self.ls2 = make_layer_scale(channels, scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """(B,M,C) to (B,M,C)."""
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))


class CrossAttentionBlock(nn.Module):
    """Cross-attention of both sides, then an MLP on either; norms before, residuals around.

    The tokens attend to the latents from before the block. Without ``update_latents`` only tokens
    are updated.
    """

    def __init__(self, sizes: Sizes, update_latents: bool) -> None:
        super().__init__()
        channels, num_heads, hidden, scale, drop_path = sizes
        self.update_latents = update_latents
        self.norm1_lat = nn.LayerNorm(channels, eps=1e-6)
        self.norm1_pat = nn.LayerNorm(channels, eps=1e-6)
        self.attn = BidirectionalAttention(channels, num_heads, update_latents)
        self.ls1_pat = make_layer_scale(channels, scale)
        self.norm2_pat = nn.LayerNorm(channels, eps=1e-6)
        self.mlp_pat = Mlp(channels, hidden)
        self.ls2_pat = make_layer_scale(channels, scale)
        if update_latents:
            self.ls1_lat = make_layer_scale(channels, scale)
            self.norm2_lat = nn.LayerNorm(channels, eps=1e-6)
            self.mlp_lat = Mlp(channels, hidden)
            self.ls2_lat = make_layer_scale(channels, scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, latents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) to both, (B,M,C) and (B,N,C)."""
        for_latents, for_tokens = self.attn(self.norm1_lat(latents), self.norm1_pat(tokens))
        tokens = tokens + self.drop_path(self.ls1_pat(for_tokens))
        tokens = tokens + self.drop_path(self.ls2_pat(self.mlp_pat(self.norm2_pat(tokens))))
        if self.update_latents:
            latents = latents + self.drop_path(self.ls1_lat(for_latents))
            update = self.ls2_lat(self.mlp_lat(self.norm2_lat(latents)))
            latents = latents + self.drop_path(update)
        return latents, tokens

    def remove_latent_update(self) -> None:
        """As if built without ``update_latents``."""
        self.update_latents = False
        for name in ('ls1_lat', 'norm2_lat', 'mlp_lat', 'ls2_lat'):
            delattr(self, name)
        self.attn.proj_lat = None


class Layer(nn.Module):
    """Cross-attention of both sides, self-attention of the latents, LPI of the tokens if set."""

    def __init__(self, sizes: Sizes, update_latents: bool, token_refiner: str | None) -> None:
        super().__init__()
        self.cross_attention_latents_token = CrossAttentionBlock(sizes, update_latents)
        self.self_attention_latents = SelfAttentionBlock(sizes) if update_latents else None
        self.local_patch_interaction = ResidualLPI(sizes) if token_refiner == 'lpi' else None

    def forward(
        self, latents: Tensor, tokens: Tensor, grid: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) of a grid (H,W) to both, updated."""
        latents, tokens = self.cross_attention_latents_token(latents, tokens)
        if self.self_attention_latents is not None:
            latents = self.self_attention_latents(latents)
        if self.local_patch_interaction is not None:
            tokens = self.local_patch_interaction(tokens, grid)
        return latents, tokens

    def remove_latent_update(self) -> None:
        """As if built without ``update_latents``."""
        self.self_attention_latents = None
        self.cross_attention_latents_token.remove_latent_update()


class LatentCrossAttentionBlock(nn.Module):
    """:class:`CrossAttentionBlock` without the tokens' update."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        channels, num_heads, hidden, scale, drop_path = sizes
        self.norm1_lat = nn.LayerNorm(channels, eps=1e-6)
        self.norm1_pat = nn.LayerNorm(channels, eps=1e-6)
        self.attn = LatentAttention(channels, num_heads)
        self.ls1_lat = make_layer_scale(channels, scale)
        self.norm2_lat = nn.LayerNorm(channels, eps=1e-6)
        self.mlp_lat = Mlp(channels, hidden)
        self.ls2_lat = make_layer_scale(channels, scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, latents: Tensor, tokens: Tensor) -> Tensor:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) to latents (B,M,C)."""
        normed = self.norm1_lat(latents).expand(tokens.shape[0], -1, -1)
        update = self.attn(normed, self.norm1_pat(tokens))
        latents = latents + self.drop_path(self.ls1_lat(update))
        return latents + self.drop_path(self.ls2_lat(self.mlp_lat(self.norm2_lat(latents))))


class LatentLayer(nn.Module):
    """It updates only the latents: the last layer of a classifier is one.

    Args:
        cross_attention: a :class:`LatentCrossAttentionBlock`, which layers may share.
        self_attention: one or several :class:`SelfAttentionBlock`.
    """

    def __init__(
        self, cross_attention: LatentCrossAttentionBlock, self_attention: nn.Module
    ) -> None:
        super().__init__()
        self.cross_attention_latents_token = cross_attention
        self.self_attention_latents = self_attention

    def forward(
        self, latents: Tensor, tokens: Tensor, grid: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) to updated latents and the same tokens."""
        latents = self.cross_attention_latents_token(latents, tokens)
        return self.self_attention_latents(latents), tokens


class ResidualLPI(nn.Module):
    """XCiT's local patch interaction with a norm before and a residual around it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(sizes.channels, eps=1e-6)
        self.lpi = LocalPatchInteraction(sizes.channels)
        self.ls = make_layer_scale(sizes.channels, sizes.scale)
        self.drop_path = DropPath(sizes.drop_path)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B,N,C) of a grid (H,W) to (B,N,C)."""
        return tokens + self.drop_path(self.ls(self.lpi(self.norm(tokens), grid)))


def make_latent_layer(sizes: Sizes) -> LatentLayer:
    """The last layer of the authors' classifiers."""
    return LatentLayer(LatentCrossAttentionBlock(sizes), SelfAttentionBlock(sizes))


def make_layer_scale(channels: int, init: float | None) -> nn.Module:
    return nn.Identity() if init is None else LayerScale(channels, init)


def initialise(network: nn.Module) -> None:
    """The authors' initialisation of linear layers and convolutions, which timm calls 'jax'."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            is_mlp = name.endswith(('.fc1', '.fc2'))
            if module.bias is not None:
                nn.init.normal_(module.bias, std=1e-6 if is_mlp else 0.0)
        elif isinstance(module, nn.Conv2d):
            init_lecun_normal(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

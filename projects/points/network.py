"""BiXT on points: the layers of the networks for images, and tokens that are points."""

from collections.abc import Mapping, Sequence

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmbixt.backbones.arch import resolve_arch
from mmbixt.backbones.bixt import ARCH_DEFAULTS, ARCHS
from mmbixt.backbones.bixt_layers import Layer, Sizes, initialise, make_latent_layer
from mmbixt.layers import sinusoids
from mmbixt.layers.embedding import FEATURES_PER_AXIS
from mmbixt.registry import MODELS
from projects.points.grouping import AffineGrouping, Interpolation


@MODELS.register_module()
class PointBiXT(BaseModule):
    """BiXT for the points of a shape: latents for classification, or tokens of all points.

    A point becomes a token by the sines and cosines of its coordinates and a linear layer. In the
    naive network all points are tokens in all layers. With ``reductions`` groups of points become
    tokens before the first layers, and if ``dense``, a decoder leads back to the points.

    The paper leaves open, and this class chooses: the scale of the coordinates in the sines
    (``periods``); a grouping stands before a layer; the category is a learned vector that is added
    to all tokens.

    Args:
        axes: 3 for coordinates, 6 with normals.
        arch: name or dict, as in :class:`mmbixt.backbones.BiXT`.
        depth: number of layers, with the last one, which updates only the tokens (``dense``) or
            only the latents; default: that of ``arch``.
        num_latents: number of latents M.
        periods: of the fastest sine from -1 to 1 of an axis. Images have 1 over a side.
        reductions: for each of the first layers, the factor by which an
            :class:`projects.points.grouping.AffineGrouping` before it reduces the points.
        neighbours: of an anchor in a grouping.
        dense: return tokens of all points instead of latents.
        num_categories: categories of the shapes, if the network is told them; 0 if not.
        drop_path_rate: stochastic depth, growing linearly from 0 to this rate at the last layer.
        init_cfg: mmengine's initialisation.
    """

    def __init__(
        self,
        axes: int = 3,
        arch: str | Mapping = 'tiny',
        depth: int | None = None,
        num_latents: int = 64,
        periods: float = 4,
        reductions: Sequence[int] = (),
        neighbours: int = 24,
        dense: bool = False,
        num_categories: int = 0,
        drop_path_rate: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.arch = resolve_arch('PointBiXT', arch, ARCHS, ARCH_DEFAULTS, depth=depth)
        channels, depth = self.arch['embed_dims'], self.arch['depth']
        if len(reductions) > depth:
            raise ValueError(f'reductions={reductions!r} are more than the {depth} layers.')
        self.channels, self.dense, self.periods = channels, dense, periods
        self.latents = nn.Parameter(torch.empty(1, num_latents, channels))
        self.token_projection = nn.Linear(axes * FEATURES_PER_AXIS, channels)
        self.categories = nn.Embedding(num_categories, channels) if num_categories else None
        self.groupings = nn.ModuleList(AffineGrouping(channels, r, neighbours) for r in reductions)
        self.decoder = nn.ModuleList(Interpolation(channels) for _ in reductions if dense)

        hidden = int(channels * self.arch['mlp_ratio'])
        same = channels, self.arch['num_heads'], hidden, self.arch['layer_scale']
        *first, last = (Sizes(*same, drop_path_rate * i / max(depth - 1, 1)) for i in range(depth))
        self.blocks = nn.ModuleList(Layer(sizes, True, None) for sizes in first)
        if dense:
            self.blocks.append(Layer(last, False, None))
        else:
            self.blocks.append(make_latent_layer(last))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As in BiXT; the categories are like latents."""
        nn.init.trunc_normal_(self.latents, std=0.02)
        initialise(self)
        if self.categories is not None:
            nn.init.trunc_normal_(self.categories.weight, std=0.02)

    def tokenize(self, points: Tensor, category: Tensor | None = None) -> Tensor:
        """Points (B,N,axes) and categories (B,) to tokens (B,N,C)."""
        features = sinusoids((points + 1) / 2 * self.periods).flatten(2)
        tokens = self.token_projection(features.to(self.token_projection.weight.dtype))
        if self.categories is not None:
            tokens = tokens + self.categories(category)[:, None]
        return tokens

    def forward(self, points: Tensor, category: Tensor | None = None) -> Tensor:
        """Points (B,N,axes), with x, y, z first, to latents (B,M,C), or tokens (B,N,C) if dense.

        Args:
            points: of shapes in the unit sphere.
            category: (B,), with ``num_categories``.
        """
        latents, tokens = self.latents, self.tokenize(points, category)
        places, finer = points[..., :3], []
        for i, layer in enumerate(self.blocks):
            if i < len(self.groupings):
                finer.append((places, tokens))
                places, tokens = self.groupings[i](places, tokens)
            latents, tokens = layer(latents, tokens, (tokens.shape[1], 1))
        for interpolation in self.decoder:
            fine_places, fine_tokens = finer.pop()
            tokens = interpolation(fine_places, fine_tokens, places, tokens)
            places = fine_places
        return tokens if self.dense else latents

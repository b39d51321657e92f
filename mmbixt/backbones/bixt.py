"""BiXT: Perceiving Longer Sequences With Bi-Directional Cross-Attention Transformers (2024).

In each layer a few latents and all tokens attend to each other through one similarity matrix, whose
size is linear in the number of tokens. The names of the weights are the authors'. The layers are in
:mod:`mmbixt.backbones.bixt_layers`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmbixt.backbones.arch import check_choice, resolve_arch, resolve_out_indices
from mmbixt.backbones.base import DenseBackbone, LayerInfo, Parts, State
from mmbixt.backbones.bixt_layers import Layer, Sizes, initialise, make_latent_layer
from mmbixt.backbones.final_layers import LatentMean
from mmbixt.checkpoints.state_dict import rename
from mmbixt.layers import (
    ConvPatchEmbed,
    FourierPositionEncoding,
    LinearPatchEmbed,
    map_to_tokens,
    tokens_to_map,
)

ARCHS = {
    'tiny': dict(embed_dims=192, num_heads=6, depth=12),
    'small': dict(embed_dims=384, num_heads=12, depth=12),
    # Published with 12 layers only, of which the last one does not update the tokens.
    'd256': dict(embed_dims=256, num_heads=8, depth=11),
    'd256-ls': dict(embed_dims=256, num_heads=8, depth=11, layer_scale=1e-5),
}
ARCH_DEFAULTS = dict(mlp_ratio=4, layer_scale=None)

# in the authors' files: the classifier, and the grid of positions
NOT_USED = re.compile(r'(fc_norm|head)\.|fourier_pos_encode\.pos$')
LATENT_UPDATE = re.compile(r'\.(self_attention_latents|attn\.proj_lat|\w+_lat)\.')
LAYER = re.compile(r'blocks\.(\d+)\.')


class BiXT(DenseBackbone):
    """Bi-directional cross-attention transformer for dense prediction.

    Only layers that update tokens *and* latents are built, up to the last of ``out_indices``. The
    last one has no update of the latents, because nothing uses it.

    Args:
        arch: 'tiny' (width 192), 'small' (384), 'd256' or 'd256-ls' (256, the latter with layer
            scale), or a dict with ``embed_dims``, ``num_heads``, ``depth`` and optionally
            ``mlp_ratio`` (4) and ``layer_scale`` (None, or its initial value).
        depth: number of layers; default: that of ``arch``. A published checkpoint of n layers
            loads into ``depth = n - 1``, because its last layer updates only the latents.
        num_latents: number of latents M.
        patch_stride: 16, 8 or 4 pixels from token to token.
        patch_embed: 'linear' (patches, which overlap if they are larger than the stride) or 'conv'
            (the convolutional tokeniser).
        patch_size: side of the patches of 'linear': 32, 16, 8 or 4 pixels, not below the stride.
        token_refiner: None, or 'lpi' for XCiT's local patch interaction after each layer, the
            paper's "+LPI".
        out_indices: layers (from 0; negative ones from the end) whose tokens are returned.
            Default: after a third, a half, two thirds and all of them, (3, 5, 7, 11) of 12.
        latent_layer: also build the authors' last layer, which updates only the latents, after
            ``depth`` others, and return the latents, as classifiers need them.
        drop_path_rate: stochastic depth, growing linearly from 0 at the first layer to this rate
            at layer ``depth``, the authors' last one, which only classifiers have.
        options: ``in_channels``, ``frozen_stages``, ``norm_eval``, ``with_cp`` and ``init_cfg``
            of :class:`mmbixt.backbones.base.DenseBackbone`. Stage 0 is the tokeniser, position
            encoding and latents, each further one a layer.
    """

    # no published file has the local patch interaction of the paper's "+LPI"
    may_be_missing = r'blocks\.\d+\.local_patch_interaction\.'
    weight_names = r'cross_attention_latents_token'
    final_layers = LatentMean
    in_classifier = dict(latent_layer=True)
    neck_in_classifier = (r'^fc_norm\.', 'neck.fc_norm.')

    def __init__(
        self,
        arch: str | Mapping = 'tiny',
        depth: int | None = None,
        num_latents: int = 64,
        patch_stride: int = 16,
        patch_embed: str = 'linear',
        patch_size: int = 16,
        token_refiner: str | None = None,
        out_indices: Sequence[int] | None = None,
        latent_layer: bool = False,
        drop_path_rate: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.arch = resolve_arch(type(self).__name__, arch, ARCHS, ARCH_DEFAULTS, depth=depth)
        check_choice('patch_stride', patch_stride, (16, 8, 4))
        check_choice('patch_embed', patch_embed, ('linear', 'conv'))
        check_choice('patch_size', patch_size, [n for n in (32, 16, 8, 4) if n >= patch_stride])
        check_choice('token_refiner', token_refiner, (None, 'lpi'))
        self.patch_stride = patch_stride
        self.out_indices = resolve_out_indices(out_indices, self.arch['depth'])
        self.latent_layer = latent_layer
        self.token_refiner = token_refiner
        channels = self.arch['embed_dims']

        self.latents = nn.Parameter(torch.empty(1, num_latents, channels))
        if patch_embed == 'linear':
            self.patch_embed = LinearPatchEmbed(
                channels, patch_stride, self.in_channels, patch_size
            )
        else:
            self.patch_embed = ConvPatchEmbed(channels, patch_stride, self.in_channels)
        self.fourier_pos_encode = FourierPositionEncoding(channels)
        hidden = int(channels * self.arch['mlp_ratio'])
        sizes = Sizes(channels, self.arch['num_heads'], hidden, self.arch['layer_scale'])
        self.blocks = nn.ModuleList(self.make_layers(sizes, drop_path_rate))
        self.reset_parameters()
        self.finish_init()

    def make_layers(self, sizes: Sizes, drop_path_rate: float) -> list[nn.Module]:
        """The layers up to the last that an output needs."""
        depth = self.arch['depth']
        last = depth - 1 if self.latent_layer else max(self.out_indices)
        layers = []
        for i in range(last + 1):
            update_latents = i < last or self.latent_layer
            own = sizes._replace(drop_path=drop_path_rate * i / depth)
            layers.append(Layer(own, update_latents, self.token_refiner))
        if self.latent_layer:
            layers.append(make_latent_layer(sizes._replace(drop_path=drop_path_rate)))
        return layers

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.latents, std=0.02)
        initialise(self)

    def stem(self) -> Parts:
        return [self.patch_embed, self.fourier_pos_encode, self.latents]

    def embed(self, image: Tensor) -> tuple[Tensor, Tensor, tuple[int, int]]:
        """Latents (1,M,C), tokens (B,N,C), and their grid (H,W)."""
        x = self.fourier_pos_encode(self.patch_embed(image))
        return self.latents, map_to_tokens(x), tuple(x.shape[2:])

    def layer_list(self) -> list[LayerInfo]:
        """There is no feature map after the authors' last layer, which updates only the latents."""
        return [
            LayerInfo(
                f'blocks.{i}',
                block,
                self.arch['embed_dims'],
                self.patch_stride,
                map_index=i if i < self.arch['depth'] else None,
            )
            for i, block in enumerate(self.blocks)
        ]

    def step(self, layer: LayerInfo, state: tuple) -> tuple[Tensor, Tensor, tuple[int, int]]:
        latents, tokens, grid = state
        latents, tokens = self.run_layer(layer.module, latents, tokens, grid)
        return latents, tokens, grid

    def feature_map(self, state: tuple, norm: None = None) -> Tensor:
        _, tokens, grid = state
        return tokens_to_map(tokens, grid)

    def outputs(self, feature_maps: tuple[Tensor, ...], state: tuple) -> tuple:
        """With ``latent_layer``: the feature maps, and the latents (B,M,C)."""
        return (feature_maps, state[0]) if self.latent_layer else feature_maps

    def convert(self, state: State) -> dict[str, Tensor]:
        """From the authors' classifiers.

        Left out are the classifier, a stored grid of positions, layers that no output needs, and
        the latents' update in the last layer of a network that has none.
        """
        expected, last = self.state_dict(), len(self.blocks) - 1

        def new_name(key: str) -> str | None:
            layer = LAYER.match(key)
            if layer is None:
                is_dropped = NOT_USED.match(key) is not None
            else:
                number = int(layer[1])  # the authors' last layer has that of the depth
                is_later = last < number <= self.arch['depth']
                is_dropped = is_later or (number == last and LATENT_UPDATE.search(key))
            return None if is_dropped and key not in expected else key

        return rename(state, new_name)

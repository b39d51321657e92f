"""The layers between backbone and head of the authors' classifiers, as necks.

Each neck returns one vector for each image; a linear head follows. The names of the weights are the
authors', so that a neck can load its weights from a whole file:
``neck=dict(type=..., init_cfg=dict(type='Pretrained', checkpoint=...))``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.model import BaseModule
from timm.layers import trunc_normal_
from torch import Tensor, nn

from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.checkpoints.state_dict import compare, replace, unwrap, without
from mmbixt.layers import ClassAttentionLayer, map_to_tokens
from mmbixt.layers.initialise import init_linear
from mmbixt.registry import MODELS


class ClassifierNeck(BaseModule):
    """A neck that loads all of its weights, also from a whole classifier, or raises an error."""

    def __init__(self, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        self.register_load_state_dict_pre_hook(ClassifierNeck._fit_weights)

    def convert(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights of a file by this neck's names."""
        return state

    def _fit_weights(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        source, expected = self.convert(unwrap(without(prefix, state_dict))), self.state_dict()
        parts = {key.partition('.')[0] for key in expected}
        weights = {key: x for key, x in source.items() if key.partition('.')[0] in parts}
        if problems := compare(weights, expected).problems:
            lines = [f'The weights do not fit mmbixt.{type(self).__name__}.', *problems]
            raise CheckpointMismatchError('\n  '.join([*lines, 'Nothing was loaded.']))
        replace(state_dict, prefix, weights)


def _last_feature_map(inputs: Sequence[Tensor], neck: nn.Module) -> Tensor:
    if inputs[-1].ndim != 4:
        raise ValueError(
            f'{type(neck).__name__} needs a feature map (B,C,H,W), but the last output of the '
            f'backbone is {tuple(inputs[-1].shape)}. For the latents of BiXT use LatentMeanNeck.'
        )
    return inputs[-1]


@MODELS.register_module()
class ClassAttentionNeck(ClassifierNeck):
    """XCiT's neck: a class token attends to the tokens of the last feature map, in a few layers.

    Args:
        in_channels: channels C of the feature map.
        num_heads: heads of the attention, as many as the backbone's.
        depth: number of layers.
        mlp_ratio: hidden width of the MLPs, divided by C.
        layer_scale: initial value of the layer scales; the authors use 1 for backbones of 12
            layers and 1e-5 for 24.
        tokens_norm: whether the second norm of a layer is applied to all tokens, or to the class
            token alone, as in the nano models.
        init_cfg: mmengine's initialisation; the authors' and timm's checkpoints load as they are.
    """

    def __init__(
        self,
        in_channels: int,
        num_heads: int,
        depth: int = 2,
        mlp_ratio: float = 4,
        layer_scale: float = 1.0,
        tokens_norm: bool = True,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        sizes = (in_channels, num_heads, int(in_channels * mlp_ratio), layer_scale, tokens_norm)
        self.num_heads = num_heads
        self.cls_token = nn.Parameter(torch.empty(1, 1, in_channels))
        self.cls_attn_blocks = nn.Sequential(*(ClassAttentionLayer(*sizes) for _ in range(depth)))
        self.norm = nn.LayerNorm(in_channels, eps=1e-6)
        trunc_normal_(self.cls_token, std=0.02)
        self.apply(init_linear)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor]:
        """The last feature map (B,C,H,W) to the class token (B,C)."""
        tokens = map_to_tokens(_last_feature_map(inputs, self))
        class_token = self.cls_token.expand(len(tokens), -1, -1)
        tokens = self.cls_attn_blocks(torch.cat((class_token, tokens), dim=1))
        return (self.norm(tokens[:, 0]),)

    def convert(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Concatenate timm's linear layers q, k and v of class attention to the authors' qkv."""
        fused = dict(state)
        for key in state:
            first = re.fullmatch(r'(cls_attn_blocks\.\d+\.attn\.)q(\.weight|\.bias)', key)
            parts = [f'{first[1]}{part}{first[2]}' for part in 'qkv'] if first else []
            if parts and all(part in state for part in parts):
                fused[f'{first[1]}qkv{first[2]}'] = torch.cat([fused.pop(part) for part in parts])
        return fused


@MODELS.register_module()
class LatentMeanNeck(ClassifierNeck):
    """BiXT's neck: the mean of the latents, and a norm.

    Args:
        in_channels: channels C of the latents.
        init_cfg: mmengine's initialisation; the authors' checkpoints load as they are.
    """

    def __init__(self, in_channels: int, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        self.fc_norm = nn.LayerNorm(in_channels, eps=1e-6)

    def forward(self, inputs: tuple[tuple[Tensor, ...], Tensor]) -> tuple[Tensor]:
        """Feature maps and latents (B,M,C) to (B,C)."""
        latents = inputs[-1]
        if latents.ndim != 3:
            raise ValueError(
                'LatentMeanNeck needs the latents, but the backbone returns only feature maps: '
                "build it as backbone=dict(type='mmbixt.BiXT', latent_layer=True, ...)."
            )
        return (self.fc_norm(latents.mean(dim=1)),)


@MODELS.register_module()
class BatchNormMeanNeck(ClassifierNeck):
    """BiFormer's neck: a batch norm of the last feature map, and its mean over all positions.

    The backbone must have ``output_norms=False``.

    Args:
        in_channels: channels C of the feature map.
        init_cfg: mmengine's initialisation; the authors' checkpoints load as they are.
    """

    def __init__(self, in_channels: int, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        self.norm = nn.BatchNorm2d(in_channels)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor]:
        """The last feature map (B,C,H,W) to (B,C)."""
        return (self.norm(_last_feature_map(inputs, self)).mean(dim=(2, 3)),)

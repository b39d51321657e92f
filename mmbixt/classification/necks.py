"""The layers between backbone and head of the authors' classifiers, as necks.

Each neck returns one vector for each image. It can load its weights from a file of a classifier:
``neck=dict(type=..., init_cfg=dict(type='Pretrained', checkpoint=...))``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.model import BaseModule
from torch import Tensor

from mmbixt.backbones.final_layers import BatchNormMean, ClassAttention, FinalLayers, LatentMean
from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.checkpoints.state_dict import compare, replace, without
from mmbixt.registry import MODELS


class ClassifierNeck(FinalLayers, BaseModule):
    """Final layers that load all of their weights, also from a whole classifier, or raise an error.

    Its arguments are those of ``add_final_layers``, and mmengine's ``init_cfg``.
    """

    def __init__(self, *sizes: Any, init_cfg: dict | None = None, **options: Any) -> None:
        super().__init__(init_cfg)
        self.add_final_layers(*sizes, **options)
        self.register_load_state_dict_pre_hook(ClassifierNeck._fit_weights)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor]:
        """The last feature map (B,C,H,W), or the latents (B,M,C), to (B,C)."""
        return (self.pool(self.finish(inputs[-1])),)

    def convert(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights of a file by this neck's names."""
        return state

    def _fit_weights(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        source, expected = self.convert(without(prefix, state_dict)), self.state_dict()
        parts = {key.partition('.')[0] for key in expected}
        weights = {key: x for key, x in source.items() if key.partition('.')[0] in parts}
        if problems := compare(weights, expected).problems:
            lines = [f'The weights do not fit mmbixt.{type(self).__name__}.', *problems]
            raise CheckpointMismatchError('\n  '.join([*lines, 'Nothing was loaded.']))
        replace(state_dict, prefix, weights)


@MODELS.register_module()
class ClassAttentionNeck(ClassAttention, ClassifierNeck):
    """XCiT's neck: a class token attends to the tokens of the last feature map, in a few layers.

    timm's checkpoints load as they are, too.
    """

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
class LatentMeanNeck(LatentMean, ClassifierNeck):
    """BiXT's neck: the mean of the latents (B,M,C), and a norm; ``in_channels`` is C."""


@MODELS.register_module()
class BatchNormMeanNeck(BatchNormMean, ClassifierNeck):
    """BiFormer's neck: a batch norm of the last feature map, and its mean over all positions.

    The backbone must have ``output_norms=False``.
    """


NECKS = {
    ClassAttention: ClassAttentionNeck,
    LatentMean: LatentMeanNeck,
    BatchNormMean: BatchNormMeanNeck,
}

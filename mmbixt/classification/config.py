"""The authors' classifier on a backbone, as a config of mmpretrain."""

from typing import Any

import torch

from mmbixt.classification.necks import is_mean, neck_of
from mmbixt.registry import MODELS


def classifier_config(backbone: dict[str, Any], num_classes: int = 1000) -> dict[str, Any]:
    """The authors' classifier on a dense backbone, as an ``ImageClassifier`` of mmpretrain."""
    kind = MODELS.get(backbone['type'])
    backbone = {**backbone, **kind.in_classifier}
    with torch.device('meta'):
        built = MODELS.build({**backbone, 'init_cfg': None})
    width = built.out_channels[-1]
    neck = dict(type='GlobalAveragePooling')
    if not is_mean(kind.final_layers):
        name = neck_of(kind.final_layers).__name__
        neck = dict(type=f'mmbixt.{name}', in_channels=width, **built.final_options())
    head = dict(type='mmbixt.ClassifierHead', num_classes=num_classes, in_channels=width)
    return dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head)

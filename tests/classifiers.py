"""The authors' classifiers as configs of mmpretrain's ImageClassifier."""

from typing import Any

import torch
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmbixt.backbones.published import PUBLISHED
from mmbixt.classification import classifier_config

BY_NAME = {model.name: model for model in PUBLISHED}


def published(name: str, num_classes: int = 1000, **options: Any) -> dict:
    """The classifier of a published name, with further ``options`` of its backbone."""
    return classifier_config({**BY_NAME[name].backbone, **options}, num_classes)


def build(config: dict) -> nn.Module:
    init_default_scope('mmpretrain')
    return MODELS.build(config).eval()


def build_meta(config: dict) -> nn.Module:
    with torch.device('meta'):
        return build(config)

"""The authors' classifiers as configs of mmpretrain's ImageClassifier."""

from typing import Any

import torch
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmbixt.backbones.published import PUBLISHED

BY_NAME = {model.name: model for model in PUBLISHED}


def classifier_config(name: str, num_classes: int = 1000, **options: Any) -> dict:
    """Of a published name, with further ``options`` of the backbone."""
    backbone = {**BY_NAME[name].backbone, **options}
    with torch.device('meta'):
        width = MODELS.build({'init_cfg': None, **backbone}).out_channels[-1]
    neck = NECKS[BY_NAME[name].family](backbone, width)
    return dict(
        type='ImageClassifier',
        backbone=backbone,
        neck=neck,
        head=dict(type='mmbixt.ClassifierHead', num_classes=num_classes, in_channels=width),
    )


def build(config: dict) -> nn.Module:
    init_default_scope('mmpretrain')
    return MODELS.build(config).eval()


def _xcit(backbone: dict, width: int) -> dict:
    heads = {128: 4, 192: 4, 384: 8, 512: 8, 768: 16}[width]
    return dict(
        type='mmbixt.ClassAttentionNeck',
        in_channels=width,
        num_heads=heads,
        tokens_norm='nano' not in backbone['arch'],
    )


def _bixt(backbone: dict, width: int) -> dict:
    backbone['latent_layer'] = True
    return dict(type='mmbixt.LatentMeanNeck', in_channels=width)


def _biformer(backbone: dict, width: int) -> dict:
    backbone.update(output_norms=False, out_indices=(3,))
    return dict(type='mmbixt.BatchNormMeanNeck', in_channels=width)


def _swin(backbone: dict, width: int) -> dict:
    backbone.update(shift_single_window=False, out_indices=(3,))
    return dict(type='GlobalAveragePooling')


NECKS = {'XCiT': _xcit, 'BiXT': _bixt, 'BiFormer': _biformer, 'BiSASwin': _swin}

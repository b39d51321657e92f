"""The authors' classifiers as configs of mmpretrain's ImageClassifier."""

from typing import Any

import torch
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmbixt.backbones.published import PUBLISHED

BY_NAME = {model.name: model for model in PUBLISHED}
READ = {  # what a backbone needs for it, by its type
    'mmbixt.XCiT': dict(),
    'mmbixt.BiXT': dict(latent_layer=True),
    'mmbixt.BiFormer': dict(output_norms=False, out_indices=(-1,)),
    'mmbixt.BiSASwin': dict(shift_single_window=False, out_indices=(-1,)),
}
NECKS = {
    'mmbixt.XCiT': dict(type='mmbixt.ClassAttentionNeck'),
    'mmbixt.BiXT': dict(type='mmbixt.LatentMeanNeck'),
    'mmbixt.BiFormer': dict(type='mmbixt.BatchNormMeanNeck'),
    'mmbixt.BiSASwin': dict(type='GlobalAveragePooling'),
}


def published(name: str, num_classes: int = 1000, **options: Any) -> dict:
    """The classifier of a published name, with further ``options`` of its backbone."""
    return classifier({**BY_NAME[name].backbone, **options}, num_classes)


def classifier(backbone: dict, num_classes: int) -> dict:
    """A classifier on a dense backbone."""
    kind = backbone['type']
    backbone = {**backbone, **READ[kind]}
    with torch.device('meta'):
        built = MODELS.build({**backbone, 'init_cfg': None})
    width, neck = built.out_channels[-1], NECKS[kind]
    if kind != 'mmbixt.BiSASwin':
        neck = dict(neck, in_channels=width)
    if kind == 'mmbixt.XCiT':
        neck.update(num_heads=built.arch['num_heads'], tokens_norm=backbone['arch'] != 'nano12')
    head = dict(type='mmbixt.ClassifierHead', num_classes=num_classes, in_channels=width)
    return dict(type='ImageClassifier', backbone=backbone, neck=neck, head=head)


def build(config: dict) -> nn.Module:
    init_default_scope('mmpretrain')
    return MODELS.build(config).eval()


def build_meta(config: dict) -> nn.Module:
    with torch.device('meta'):
        return build(config)

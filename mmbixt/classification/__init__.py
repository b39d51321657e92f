"""The authors' classifiers for mmpretrain, and distillation."""

from typing import Any

from torch import nn

from mmbixt.classification.config import classifier_config
from mmbixt.classification.head import ClassifierHead
from mmbixt.classification.necks import BatchNormMeanNeck, ClassAttentionNeck, LatentMeanNeck
from mmbixt.frameworks import UNUSABLE, missing_framework
from mmbixt.registry import MODELS

__all__ = [
    'BatchNormMeanNeck',
    'ClassAttentionNeck',
    'ClassifierHead',
    'DistilledClassifier',
    'LatentMeanNeck',
    'classifier_config',
]


@MODELS.register_module()
def DistilledClassifier(**options: Any) -> nn.Module:  # noqa: N802 (a type in configs)
    """Build the class of ``mmbixt.classification.distilled``, which describes the options.

    This is a function, so that mmpretrain is imported only when a classifier is built.
    """
    try:
        from mmbixt.classification import distilled
    except UNUSABLE as error:
        raise missing_framework('mmbixt.DistilledClassifier', 'mmpretrain', error) from error
    return distilled.DistilledClassifier(**options)

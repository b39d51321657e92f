"""The authors' classifiers for mmpretrain, and distillation."""

from mmbixt.classification.config import classifier_config
from mmbixt.classification.necks import BatchNormMeanNeck, ClassAttentionNeck, LatentMeanNeck
from mmbixt.frameworks import IMPORT_ERRORS, register_missing
from mmbixt.registry import MODELS

__all__ = [
    'BatchNormMeanNeck',
    'ClassAttentionNeck',
    'ClassifierHead',
    'DistilledClassifier',
    'LatentMeanNeck',
    'classifier_config',
]

try:
    from mmbixt.classification.distilled import DistilledClassifier
    from mmbixt.classification.head import ClassifierHead
except IMPORT_ERRORS as error:
    needing_it = ['ClassifierHead', 'DistilledClassifier']
    __getattr__ = register_missing(MODELS, needing_it, 'mmpretrain', error)

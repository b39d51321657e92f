from mmbixt.frameworks import UNUSABLE, register_missing
from mmbixt.registry import MODELS

__all__ = ['FeaturePyramidAdapter']

try:
    from mmbixt.necks.feature_pyramid_adapter import FeaturePyramidAdapter
except UNUSABLE as error:
    __getattr__ = register_missing(MODELS, ['FeaturePyramidAdapter'], 'mmcv', error)

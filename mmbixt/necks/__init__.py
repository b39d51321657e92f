from mmbixt.frameworks import UNUSABLE, stand_in
from mmbixt.registry import MODELS

__all__ = ['FeaturePyramidAdapter']

try:
    from mmbixt.necks.feature_pyramid_adapter import FeaturePyramidAdapter
except UNUSABLE as error:
    __getattr__ = stand_in(MODELS, __all__, framework='mmcv', error=error)

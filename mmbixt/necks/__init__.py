from mmbixt.frameworks import IMPORT_ERRORS, register_missing
from mmbixt.registry import MODELS

__all__ = ['FeaturePyramidAdapter']

try:
    from mmbixt.necks.feature_pyramid_adapter import FeaturePyramidAdapter
except IMPORT_ERRORS as error:
    __getattr__ = register_missing(MODELS, ['FeaturePyramidAdapter'], 'mmcv', error)

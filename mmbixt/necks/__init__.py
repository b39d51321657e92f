from mmbixt.frameworks import import_problem, register_missing
from mmbixt.registry import MODELS

__all__ = ['FeaturePyramidAdapter']

problem = import_problem('mmcv.cnn')
if problem is None:
    from mmbixt.necks.feature_pyramid_adapter import FeaturePyramidAdapter
else:
    __getattr__ = register_missing(MODELS, 'FeaturePyramidAdapter', 'mmcv', problem)

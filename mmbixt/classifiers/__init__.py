from typing import Any

from torch import nn

from mmbixt.frameworks import import_problem, missing_framework
from mmbixt.registry import MODELS

__all__ = ['DistilledClassifier']


@MODELS.register_module()
def DistilledClassifier(**options: Any) -> nn.Module:  # noqa: N802 (a type in configs)
    """Build the class of ``mmbixt.classifiers.distilled``, which describes the options.

    This is a function, so that mmpretrain is imported only when a classifier is built.
    """
    if problem := import_problem('mmpretrain.models'):
        raise missing_framework('mmbixt.DistilledClassifier', 'mmpretrain', problem) from problem
    from mmbixt.classifiers import distilled

    return distilled.DistilledClassifier(**options)

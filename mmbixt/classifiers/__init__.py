"""What needs mmpretrain: functions, so that it is imported only when a component is built."""

from typing import Any

from torch import nn

from mmbixt.frameworks import import_problem, missing_framework
from mmbixt.registry import MODELS

__all__ = ['DistilledClassifier']


@MODELS.register_module()
def DistilledClassifier(**options: Any) -> nn.Module:  # noqa: N802 (a type in configs)
    """Build the class of ``mmbixt.classifiers.distilled``, which describes the options."""
    check_mmpretrain('DistilledClassifier')
    from mmbixt.classifiers import distilled

    return distilled.DistilledClassifier(**options)


def check_mmpretrain(name: str) -> None:
    if problem := import_problem('mmpretrain.models'):
        raise missing_framework(f'mmbixt.{name}', 'mmpretrain', problem) from problem

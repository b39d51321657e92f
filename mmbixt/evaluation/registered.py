"""The metric classes, registered for mm configs; BoundaryCocoMetric needs mmdet."""

from mmbixt.evaluation.metrics import BoundaryIoUMetric
from mmbixt.frameworks import UNUSABLE, register_missing
from mmbixt.registry import METRICS

try:
    from mmbixt.evaluation.coco_metric import BoundaryCocoMetric
except UNUSABLE as error:
    __getattr__ = register_missing(METRICS, ['BoundaryCocoMetric'], 'mmdet', error)

__all__ = ['BoundaryCocoMetric', 'BoundaryIoUMetric']

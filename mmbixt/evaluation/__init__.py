"""Metrics: pure functions on label maps, and what plugs them into mm configs."""

from mmbixt.evaluation.boundary import class_scores, image_sums, scores
from mmbixt.evaluation.metrics import BoundaryIoUMetric
from mmbixt.frameworks import UNUSABLE, stand_in
from mmbixt.registry import METRICS

try:
    from mmbixt.evaluation.coco_metric import BoundaryCocoMetric
except UNUSABLE as error:
    __getattr__ = stand_in(METRICS, ['BoundaryCocoMetric'], framework='mmdet', error=error)

__all__ = [
    'BoundaryCocoMetric',
    'BoundaryIoUMetric',
    'class_scores',
    'image_sums',
    'scores',
]

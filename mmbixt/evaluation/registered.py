"""The metric classes, registered for mm configs; BoundaryCocoMetric needs mmdet."""

from mmbixt.evaluation.metrics import BoundaryIoUMetric
from mmbixt.frameworks import import_problem, register_missing
from mmbixt.registry import METRICS

problem = import_problem('mmdet.evaluation')
if problem is None:
    from mmbixt.evaluation.coco_metric import BoundaryCocoMetric
else:
    __getattr__ = register_missing(METRICS, 'BoundaryCocoMetric', 'mmdet', problem)

__all__ = ['BoundaryCocoMetric', 'BoundaryIoUMetric']

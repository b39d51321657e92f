"""The registered metrics; BoundaryCocoMetric needs mmdet and faster-coco-eval."""

from mmbixt.evaluation.metrics import BoundaryIoUMetric
from mmbixt.frameworks import IMPORT_ERRORS, register_missing
from mmbixt.registry import METRICS

try:
    from mmbixt.evaluation.coco_metric import BoundaryCocoMetric
except IMPORT_ERRORS as error:
    needed, names = 'mmdet and faster-coco-eval', ['BoundaryCocoMetric']
    __getattr__ = register_missing(METRICS, names, needed, error)

__all__ = ['BoundaryCocoMetric', 'BoundaryIoUMetric']

"""Metrics: pure functions on label maps, and classes that call them, for mm and for torchmetrics.

The functions need numpy and OpenCV only. The classes are imported on first access, because
importing torch, torchmetrics, mmengine and mmdet takes seconds.
"""

from mmbixt.evaluation.boundary import class_scores, image_sums, scores

__all__ = [
    'BoundaryCocoMetric',
    'BoundaryIoUMetric',
    'BoundaryScores',
    'class_scores',
    'image_sums',
    'scores',
]


def __getattr__(name: str) -> type:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    if name == 'BoundaryScores':
        from mmbixt.evaluation import boundary_scores as module
    else:
        from mmbixt.evaluation import registered as module
    return getattr(module, name)

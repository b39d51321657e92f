"""Metrics: pure functions on label maps, and metric classes for mm configs that call them.

The functions need numpy and OpenCV only. The classes are imported on first access, because
importing torch, mmengine and mmdet takes seconds.
"""

from mmbixt.evaluation.boundary import class_scores, image_sums, scores

__all__ = [
    'BoundaryCocoMetric',
    'BoundaryIoUMetric',
    'class_scores',
    'image_sums',
    'scores',
]


def __getattr__(name: str) -> type:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from mmbixt.evaluation import registered

    return getattr(registered, name)

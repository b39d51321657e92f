"""Components for mmengine's training: a hook and an optimizer constructor."""

from mmbixt.engine.boundary_vis_hook import BoundaryVisHook
from mmbixt.engine.exact_resume import ExactResumeHook, NumberedBatches
from mmbixt.engine.layer_decay import LayerDecayOptimWrapperConstructor

__all__ = [
    'BoundaryVisHook',
    'ExactResumeHook',
    'LayerDecayOptimWrapperConstructor',
    'NumberedBatches',
]

"""What plugs into mmengine's training: optimizers, hooks."""

from mmbixt.engine.boundary_vis_hook import BoundaryVisHook
from mmbixt.engine.layer_decay import LayerDecayOptimWrapperConstructor

__all__ = ['BoundaryVisHook', 'LayerDecayOptimWrapperConstructor']

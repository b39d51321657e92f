"""What plugs into mmengine's training: optimizers."""

from mmbixt.engine.layer_decay import LayerDecayOptimWrapperConstructor

__all__ = ['LayerDecayOptimWrapperConstructor']

"""Components for mmengine's training: hooks, an optimizer constructor, a strategy."""

from mmbixt.engine.boundary_vis_hook import BoundaryVisHook
from mmbixt.engine.collate import default_collate
from mmbixt.engine.exact_resume import ExactResumeHook, NumberedBatches
from mmbixt.engine.finite_loss import FiniteLossHook
from mmbixt.engine.fsdp import FSDPStrategy
from mmbixt.engine.layer_decay import LayerDecayOptimWrapperConstructor
from mmbixt.engine.sample_check import SampleCheckHook

__all__ = [
    'BoundaryVisHook',
    'ExactResumeHook',
    'FSDPStrategy',
    'FiniteLossHook',
    'LayerDecayOptimWrapperConstructor',
    'NumberedBatches',
    'SampleCheckHook',
    'default_collate',
]

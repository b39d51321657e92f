"""Components for mmengine's training: hooks, optimizers, a log processor, a strategy ..."""

from mmbixt.engine.boundary_vis_hook import BoundaryVisHook
from mmbixt.engine.collate import default_collate
from mmbixt.engine.compile_layers import CompileLayersHook
from mmbixt.engine.cuda_graphs import CUDAGraphsHook
from mmbixt.engine.exact_resume import ExactResumeHook
from mmbixt.engine.finite_loss import FiniteLossHook
from mmbixt.engine.fsdp import FSDPStrategy
from mmbixt.engine.other_runs import KeepOtherRunsHook
from mmbixt.engine.parameter_groups import FewGroupsConstructor
from mmbixt.engine.short_log import ShortLogProcessor

__all__ = [
    'BoundaryVisHook',
    'CUDAGraphsHook',
    'CompileLayersHook',
    'ExactResumeHook',
    'FSDPStrategy',
    'FewGroupsConstructor',
    'FiniteLossHook',
    'KeepOtherRunsHook',
    'ShortLogProcessor',
    'default_collate',
]

"""Components for mmengine's training: hooks, groups of parameters, a strategy."""

from mmengine.runner import LogProcessor

from mmbixt.engine.collate import default_collate
from mmbixt.engine.compile_layers import CompileLayersHook
from mmbixt.engine.cuda_graphs import CUDAGraphsHook
from mmbixt.engine.exact_resume import ExactResumeHook
from mmbixt.engine.finite_loss import FiniteLossHook
from mmbixt.engine.fsdp import FSDPStrategy
from mmbixt.engine.other_runs import KeepOtherRunsHook
from mmbixt.engine.parameter_groups import FewGroupsConstructor
from mmbixt.registry import LOG_PROCESSORS

__all__ = [
    'CUDAGraphsHook',
    'CompileLayersHook',
    'ExactResumeHook',
    'FSDPStrategy',
    'FewGroupsConstructor',
    'FiniteLossHook',
    'KeepOtherRunsHook',
    'default_collate',
]

LOG_PROCESSORS.register_module('ShortLogProcessor', module=LogProcessor)  # in configs of 0.1

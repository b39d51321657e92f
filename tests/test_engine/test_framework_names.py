"""Names of frameworks that mmbixt overrides or calls, and that are not in their documentation.

If a framework renames one, an override would have no effect, without an error.
"""

import pytest
from mmengine._strategy import FSDPStrategy
from mmengine.model import MMFullyShardedDataParallel
from mmengine.optim import DefaultOptimWrapperConstructor, OptimWrapper
from mmengine.runner import FlexibleRunner, Runner
from mmpretrain.models import ImageClassifier

NAMES = [
    # mmbixt/engine/exact_resume.py; `__getitems__` of data sets is torch's
    *((Runner, name) for name in ('build_dataloader', 'iter', 'seed', 'train_dataloader')),
    *((FlexibleRunner, name) for name in ('build_dataloader', 'iter', 'seed', 'train_dataloader')),
    # mmbixt/engine/fsdp.py
    (FSDPStrategy, 'build_model'),
    (FSDPStrategy, 'build_optim_wrapper'),
    (FSDPStrategy, 'convert_model'),
    (FSDPStrategy, 'load_optim_state_dict'),
    (FSDPStrategy, 'model_state_dict'),
    (MMFullyShardedDataParallel, 'clip_grad_norm_'),
    (MMFullyShardedDataParallel, 'optim_state_dict_to_load'),
    # mmbixt/engine/bfloat16.py, layer_decay.py
    (OptimWrapper, 'optim_context'),
    (DefaultOptimWrapperConstructor, 'add_params'),
    (ImageClassifier, 'get_layer_depth'),
]


@pytest.mark.parametrize(('owner', 'name'), NAMES)
def test_name_exists(owner, name):
    assert hasattr(owner, name)

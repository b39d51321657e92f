"""The model inside of mmengine's wrappers."""

from mmengine.model import BaseTTAModel, is_model_wrapper
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel


def unwrapped(model: nn.Module) -> nn.Module:
    """A model without wrappers; FSDP's stays, because its module has only shards."""
    wrapped = is_model_wrapper(model) or isinstance(model, BaseTTAModel)
    if wrapped and not isinstance(model, FullyShardedDataParallel):
        return unwrapped(model.module)
    return model

import torch
from torch import Tensor, nn

from mmbixt.layers.as_built import is_as_built
from mmbixt.ops.dispatch import is_exporting, on_processor
from mmbixt.ops.precision import half_dtype, is_autocast, is_half, without_autocast


def apply_conv(conv: nn.Module, x: Tensor) -> Tensor:
    """``conv(x)``, on processors computed in float32 where half precision is asked for.

    The layer must be unchanged; otherwise it is called. In bfloat16, oneDNN (of torch 2.11) is
    wrong on processors with AMX for patches of 16 x 16 pixels of 4, 6, 8 and more channels. For 3
    channels it takes 5 to 40 times as long as in float32, also without AMX; for the backward pass
    of a depthwise convolution of 5 x 5 it takes 2 to 6 times as long.
    """
    is_half_here = is_half(x) and x.dtype != torch.float64 and on_processor(x)
    if not is_half_here or is_exporting() or not is_as_built(conv, nn.Conv2d):
        return conv(x)
    if not is_autocast(x) and x.dtype != conv.weight.dtype:
        return conv(x)  # an error
    dtype = half_dtype(x)
    with without_autocast(x):
        x, weight, bias = (y if y is None else y.float() for y in (x, conv.weight, conv.bias))
        return conv._conv_forward(x, weight, bias).to(dtype)

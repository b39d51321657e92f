"""Whether a fast path may read the weights of modules, in place of calling them.

A module that holds weights is called, like any ``nn.Module``, so that hooks, LoRA, weight norm,
pruning, quantised layers, FSDP units and the capture of activations work. Only where nothing of the
kind is there, a module may read the weights of its children and compute several of them in one op.
"""

from collections.abc import Callable

from timm.layers import LayerScale
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as every_module

from mmbixt.layers.norm import LayerNorm


def is_as_built(module: nn.Module, cls: type[nn.Module]) -> bool:
    """Whether a module computes what its class says with the weights that it holds, and no more.

    True if it is exactly of the class (not of a subclass, as LoRA layers and parametrized,
    quantised and FSDP modules are), if its weights are parameters (not computed, not distributed),
    and if no hook of any kind looks at it: its own, or one for all modules.

    Args:
        module: what was built, or what a user has put in its place.
        cls: what was built there.
    """
    return (
        type(module) is cls
        and not (
            module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
            or every_module._global_forward_hooks
            or every_module._global_forward_pre_hooks
            or every_module._global_backward_hooks
            or every_module._global_backward_pre_hooks
        )
        and 'forward' not in module.__dict__  # replaced on this one module
        and module._compiled_call_impl is None
        and (cls not in _HAS_PLAIN_WEIGHTS or _HAS_PLAIN_WEIGHTS[cls](module))
    )


def _is_plain(weight: Tensor | None) -> bool:
    return type(weight) in (nn.Parameter, FakeTensor)


def _has_plain_weights(module: nn.Module) -> bool:
    return _is_plain(module.weight) and (module.bias is None or _is_plain(module.bias))


_HAS_PLAIN_WEIGHTS: dict[type, Callable[[nn.Module], bool]] = {
    nn.Conv2d: _has_plain_weights,
    nn.GELU: lambda gelu: gelu.approximate == 'none',
    nn.Linear: _has_plain_weights,
    LayerNorm: lambda norm: _is_plain(norm.weight) and _is_plain(norm.bias),
    LayerScale: lambda scale: _is_plain(scale.gamma),
}

"""Whether a fast path may use the weights of modules directly, without calling the modules.

Modules are normally called, so that hooks, LoRA, weight norm, pruning, quantised layers, FSDP units
and the capture of activations work. Only where none of these is present, a module may take the
weights of its children and compute several of them in one op.
"""

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as every_module

_PLAIN = frozenset((nn.Parameter, FakeTensor, type(None)))


def is_as_built(module: nn.Module, cls: type[nn.Module]) -> bool:
    """Whether a module is an unchanged instance of the class that the backbone was built with.

    True if it is exactly of the class (not of a subclass, as LoRA layers and parametrized,
    quantised and FSDP modules are), if its own weights are parameters (not computed, not
    distributed), and if there are no hooks of any kind, neither its own nor global ones.
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
        and module._compiled_call_impl is None
        # replaced on this one module
        and 'forward' not in module.__dict__
        and 'weight' not in module.__dict__
        and 'bias' not in module.__dict__
        and 'gamma' not in module.__dict__
        and _PLAIN.issuperset(map(type, module._parameters.values()))
    )

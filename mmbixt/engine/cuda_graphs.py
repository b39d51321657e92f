"""Training steps in which a GPU does not wait for the CPU that starts its programs one by one."""

from collections.abc import Callable
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map  # torch has no public name for them

from mmbixt.config import within
from mmbixt.layers import DropPath
from mmbixt.registry import HOOKS


@HOOKS.register_module()
class CUDAGraphsHook(Hook):
    """Capture backbone, neck and heads of a segmentor or a classifier in CUDA graphs.

    A graph starts all programs of a part at once. The first iteration runs as always and shows what
    the parts get; before the second one ``torch.cuda.make_graphed_callables`` captures their
    forward and backward passes. Images of another size, eval mode and ``torch.no_grad()`` run as
    always. Losses and the optimizer are not captured.

    Nothing is captured, and the log says why, where a graph would compute something else:
    :func:`obstacle` lists these cases.

    Example:
        >>> custom_hooks = [dict(type='mmbixt.CUDAGraphsHook')]
    """

    priority = 'LOWEST'  # after validation before training

    def before_train(self, runner: Runner) -> None:
        """Observe the parts of the model in the first iteration."""
        self.samples: dict[nn.Module, tuple | None] = {}
        self.handles: list = []
        if problem := obstacle(runner):
            print_log(f'No CUDA graphs: {problem}.', 'current')
            return
        torch.set_autocast_cache_enabled(False)  # a graph must cast the weights of each step
        for part in parts(runner.model).values():
            self.handles.append(part.register_forward_hook(self._observe, with_kwargs=True))

    def _observe(self, part: nn.Module, inputs: tuple, options: dict, outputs: Any) -> None:
        is_tensors = all(isinstance(x, Tensor) for x in tree_leaves((inputs, outputs)))
        is_first = part not in self.samples
        fits = part.training and is_tensors and is_first and not options
        self.samples[part] = tree_map(like, inputs) if fits else None
        self.autocast = torch.is_autocast_enabled('cuda'), torch.get_autocast_dtype('cuda')

    def before_train_iter(self, runner: Runner, *_: Any, **__: Any) -> None:
        """Capture the parts before the second iteration, when nothing refers to the first one."""
        if not self.samples:
            return
        for handle in self.handles:
            handle.remove()
        samples = {part: inputs for part, inputs in self.samples.items() if inputs is not None}
        self.samples.clear()
        enabled, dtype = self.autocast
        with torch.autocast('cuda', dtype, enabled):
            capture(samples)
        names = [name for name, part in parts(runner.model).items() if part in samples]
        shape = tuple(next(iter(samples.values()))[0].shape)
        print_log(f'CUDA graphs of {", ".join(names)} captured for images {shape}.', 'current')

    def after_train(self, runner: Runner) -> None:
        torch.set_autocast_cache_enabled(True)


def obstacle(runner: Runner) -> str:
    """Why the model cannot be captured; empty if it can."""
    if not torch.cuda.is_available():
        return 'torch finds no GPU'
    model, cfg = runner.model, runner.cfg
    if is_model_wrapper(model):
        return f'{type(model).__name__} synchronises several processes between the programs'
    modules = list(model.modules())
    if not (hasattr(model, 'decode_head') or hasattr(model, 'head')):
        return f'{type(model).__name__} is no segmentor or classifier, its images have many sizes'
    if any(getattr(x, 'with_cp', False) for x in modules):
        return 'with_cp computes layers again in the backward pass'
    if any(isinstance(x, DropPath) and x.skips for x in modules):
        return "the number of images changes with drop_path='skip'"
    if within(cfg, 'optim_wrapper').get('accumulative_counts', 1) > 1:
        return 'gradients cannot be accumulated (accumulative_counts), a graph overwrites them'
    return 'compile=True compiles the whole model' if cfg.get('compile') else ''


def parts(model: nn.Module) -> dict[str, nn.Module]:
    """The parts of a segmentor or a classifier, by their names."""
    found = {}
    for name in ('backbone', 'neck', 'decode_head', 'auxiliary_head', 'head'):
        part = getattr(model, name, None)
        several = isinstance(part, nn.ModuleList)  # of heads
        found |= {f'{name}.{i}': x for i, x in enumerate(part)} if several else {name: part}
    return {name: part for name, part in found.items() if part is not None}


def like(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_(x.requires_grad)


def capture(samples: dict[nn.Module, tuple]) -> None:
    """Replace the ``forward`` of modules by CUDA graphs for inputs of these shapes.

    The passes that warm up change neither statistics of batch norms nor random numbers.

    Args:
        samples: the arguments of each module, in the order in which they run.
    """
    ordinary = [part.forward for part in samples]
    buffers = [(x, x.clone()) for part in samples for x in part.buffers()]
    with torch.random.fork_rng([torch.cuda.current_device()], device_type='cuda'):
        torch.cuda.make_graphed_callables(
            tuple(samples), tuple(samples.values()), allow_unused_input=True
        )
    for x, value in buffers:
        x.copy_(value)
    for (part, inputs), forward in zip(samples.items(), ordinary, strict=True):
        part.forward = by_shape(part.forward, forward, shapes(inputs))


def by_shape(graph: Callable, forward: Callable, expected: list) -> Callable:
    """The function ``graph`` for inputs of these shapes with gradients, ``forward`` for others.

    In eval mode torch runs ``forward`` in place of a graph.
    """

    def choose(*inputs: Any, **options: Any) -> Any:
        fits = torch.is_grad_enabled() and not options and shapes(inputs) == expected
        return (graph if fits else forward)(*inputs, **options)

    return choose


def shapes(inputs: tuple) -> list:
    return [(x.shape, x.dtype) if isinstance(x, Tensor) else x for x in tree_leaves(inputs)]

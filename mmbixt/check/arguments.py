"""Types and arguments of the parts that the check does not build, such as hooks and optimizers."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mmengine import registry as mm
from mmengine.hooks import CheckpointHook
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS, Registry
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from mmbixt.check.metrics import INSTEAD, metrics_of
from mmbixt.check.names import explain, meant, near, near_type, valid
from mmbixt.config import type_name, within
from mmbixt.frameworks import is_of_project

# what mmengine uses itself, in place of a part's class; dtype and loss_scale are of --amp, which
# changes the type of the wrapper after the check
OF_MMENGINE = {'type', '_scope_', 'priority', 'convert_to_iter_based', 'num_batch_per_epoch'}
OF_MMENGINE |= {'constructor', 'optimizer', 'paramwise_cfg', 'dtype', 'loss_scale'}
OF_MMENGINE |= {'disable_subprocess_warning'}
PARAMWISE = {'custom_keys', 'bias_lr_mult', 'bypass_duplicate', 'dcn_offset_lr_mult'}
PARAMWISE |= {f'{kind}_decay_mult' for kind in ('bias', 'norm', 'flat', 'dwconv')}
MULTIPLIERS = {'lr_mult', 'decay_mult'}  # of custom_keys
# keys of paramwise_cfg by constructor, if they are known; others may build several optimizers
CONSTRUCTORS = {
    '': PARAMWISE,
    'DefaultOptimWrapperConstructor': PARAMWISE,
    'LayerDecayOptimWrapperConstructor': PARAMWISE | {'decay_rate', 'decay_type'},
    **{f'LearningRateDecay{x}Constructor': set() for x in ('Optimizer', 'OptimWrapper')},
}
Part = tuple[str, Any, Registry | Callable]  # name, config, its class or the registry of it


def argument_problems(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """A message for each type that does not exist, and for each argument that it does not have."""
    scope = cfg.get('default_scope')
    for path, part, kind in _parts(cfg, splits):
        if not isinstance(part, Mapping):
            continue
        if kind is mm.HOOKS and part and 'type' not in part:
            name = path.rpartition('.')[2]
            right = near(name, within(cfg, 'default_hooks').keys() - {name})
            yield f'{path} has no type.{meant(right)}'
        if isinstance(kind, Registry):
            registry, kind = kind, part.get('type')
        if isinstance(kind, str):
            name = kind
            with registry.switch_scope_and_registry(part.get('_scope_')) as there:
                kind = there.get(name)
                if kind is None:
                    right = near_type(name, (part.get('_scope_'), scope))
                    place = path if path.endswith('.ema_type') else f'{path}.type'
                    yield f'{place} = {name!r} is in no registry.{meant(right)}'
                    kind = there.get(right) if right else None
        known = _arguments(kind) if callable(kind) else None
        if known is None:
            continue
        for key in sorted(part.keys() - OF_MMENGINE - known):
            owner = getattr(kind, '__name__', kind)
            yield f'{path}.{key} = {part[key]!r}: {owner} has no such argument.{valid(key, known)}'


def _constructor(wrapper: Mapping[str, Any]) -> str:
    return type_name({'type': wrapper.get('constructor', '')}).rpartition('.')[2]


def paramwise_notes(cfg: Mapping[str, Any], model: nn.Module | None) -> Iterator[str]:
    """A note on each key of ``paramwise_cfg`` that changes nothing: mmengine ignores it."""
    wrapper = within(cfg, 'optim_wrapper')
    known = CONSTRUCTORS.get(_constructor(wrapper))
    if not known:
        return
    place, paramwise = 'optim_wrapper.paramwise_cfg', within(wrapper, 'paramwise_cfg')
    names = [] if model is None else [name for name, _ in model.named_parameters()]
    for key, part in within(paramwise, 'custom_keys').items():
        right = near(key, {part for name in names for part in name.split('.')})
        # keys that are similar to none may be for layers that this model does not have
        if right and not any(key in name for name in names):
            yield f'{place}.custom_keys.{key}: no parameter has this in its name.{meant(right)}'
        # other keys are passed to the optimizer
        for name in sorted(part.keys() - MULTIPLIERS if isinstance(part, Mapping) else ()):
            if name.endswith('_mult') or near(name, MULTIPLIERS):
                yield (
                    f'{place}.custom_keys.{key}.{name} is not read. What is read: '
                    f'{", ".join(sorted(MULTIPLIERS))}.'
                )
    for key in sorted(paramwise.keys() - known - {'_delete_'}):
        yield f'{place}.{key} is not read. What is read: {", ".join(sorted(known))}.'


def paramwise_problems(cfg: Mapping[str, Any], model: nn.Module) -> Iterator[str]:
    """The error of the constructor that gives each parameter of the model its learning rate."""
    wrapper = dict(within(cfg, 'optim_wrapper'))
    if not CONSTRUCTORS.get(_constructor(wrapper)) or 'optimizer' not in wrapper:
        return
    kind = wrapper.pop('constructor', 'DefaultOptimWrapperConstructor')
    paramwise = wrapper.pop('paramwise_cfg', None)
    if isinstance(kind, str) and not OPTIM_WRAPPER_CONSTRUCTORS.get(kind):
        return  # argument_problems has reported it
    config = dict(type=kind, optim_wrapper_cfg=wrapper, paramwise_cfg=paramwise)
    try:
        OPTIM_WRAPPER_CONSTRUCTORS.build(config).add_params([], model)
    except Exception as error:
        yield f'optim_wrapper: {explain(error, cfg.get("default_scope"))}'


def _parts(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[Part]:
    for name, hook in within(cfg, 'default_hooks').items():
        yield f'default_hooks.{name}', hook, mm.HOOKS
    for path, hook, registry in _numbered(cfg, 'custom_hooks', mm.HOOKS):
        yield path, hook, registry
        if isinstance(hook, Mapping) and 'ema_type' in hook and type_name(hook) == 'EMAHook':
            yield f'{path}.ema_type', {'type': hook['ema_type']}, mm.MODELS
    yield 'log_processor', cfg.get('log_processor'), mm.LOG_PROCESSORS
    yield 'randomness', cfg.get('randomness'), Runner.set_randomness
    for split in splits:
        loader = f'{split}_dataloader'
        if within(cfg, loader, 'dataset'):  # else it is for a loop of a project
            yield loader, cfg[loader], DataLoader
        for part in ('sampler', 'batch_sampler'):
            yield f'{loader}.{part}', within(cfg, loader).get(part), mm.DATA_SAMPLERS
        loop = dict(within(cfg, f'{split}_cfg'))
        if 'by_epoch' in loop and 'type' not in loop:
            loop['type'] = f'{"Epoch" if loop.pop("by_epoch") else "Iter"}BasedTrainLoop'
        yield f'{split}_cfg', loop, mm.LOOPS
        for _, name, metric in metrics_of(cfg.get(f'{split}_evaluator')):
            if name not in INSTEAD.get(cfg.get('default_scope'), ()):  # else it is refused
                yield f'{split}_evaluator', metric, mm.METRICS
    yield 'visualizer', cfg.get('visualizer'), mm.VISUALIZERS
    for path, *backend in _numbered(within(cfg, 'visualizer'), 'vis_backends', mm.VISBACKENDS):
        yield f'visualizer.{path}', *backend
    if 'train' not in splits:
        return
    wrapper = within(cfg, 'optim_wrapper')
    if _constructor(wrapper) in CONSTRUCTORS and 'optimizer' in wrapper:
        yield 'optim_wrapper', {'type': 'OptimWrapper', **wrapper}, mm.OPTIM_WRAPPERS
        yield 'optim_wrapper.optimizer', wrapper['optimizer'], mm.OPTIMIZERS
    if 'constructor' in wrapper:
        constructor = {'type': wrapper['constructor']}
        yield 'optim_wrapper.constructor', constructor, mm.OPTIM_WRAPPER_CONSTRUCTORS
    yield from _numbered(cfg, 'param_scheduler', mm.PARAM_SCHEDULERS)


def _numbered(cfg: Mapping[str, Any], name: str, registry: Registry) -> Iterator[Part]:
    parts = cfg.get(name) or []
    if isinstance(parts, Mapping):
        yield name, parts, registry
        return
    for i, part in enumerate(parts):
        yield f'{name}.{i}', part, registry


def _arguments(kind: Callable) -> set[str] | None:
    """Names of the arguments of a function or class for a config; None if they are not known.

    Classes of ``PACKAGES`` pass ``**kwargs`` to the next one of their method resolution order;
    those of users may do anything with them, and so may decorators.
    """
    makers = {kind: kind}
    if isinstance(kind, type):
        bases = [base for base in kind.__mro__ if '__init__' in vars(base)]
        makers = {base: vars(base)['__init__'] for base in bases}
    names: set[str] = set()
    for owner, maker in makers.items():
        if hasattr(maker, '__wrapped__'):
            return None
        try:
            parameters = inspect.signature(maker).parameters.values()
        except ValueError:  # written in C
            return None
        names |= {x.name for x in parameters if x.kind not in (x.VAR_KEYWORD, x.VAR_POSITIONAL)}
        if owner is CheckpointHook:  # it passes the others to this function
            parameters = inspect.signature(Runner.save_checkpoint).parameters
            return (names | {*parameters}) - {'self'}
        if all(x.kind is not x.VAR_KEYWORD for x in parameters):
            return names - {'self'}
        if is_of_project(owner):
            return None
    return None

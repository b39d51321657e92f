"""Types and arguments of the parts that the check does not build, such as hooks and optimizers."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mmengine import registry as mm
from mmengine.hooks import CheckpointHook, EMAHook
from mmengine.registry import MODELS, OPTIM_WRAPPER_CONSTRUCTORS, Registry
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner
from torch import nn
from torch.utils.data import DataLoader

from mmbixt.check.metrics import INSTEAD, metrics_of
from mmbixt.check.names import DELETE, explain, near, near_type
from mmbixt.config import type_name, within

# arguments that mmengine uses itself, by the part of a config
HOOK = ('priority',)
SCHEDULE = ('convert_to_iter_based',)
OPTIMIZER = ('constructor', 'optimizer', 'paramwise_cfg')
OPTIMIZER += ('dtype', 'loss_scale')  # of --amp, which changes the type after the check
LOOP = ('by_epoch',)
PARAMWISE = {'custom_keys', 'bias_lr_mult', 'bypass_duplicate', 'dcn_offset_lr_mult'}
PARAMWISE |= {f'{kind}_decay_mult' for kind in ('bias', 'norm', 'flat', 'dwconv')}
ENVIRONMENT = {'cudnn_benchmark', 'mp_cfg', 'dist_cfg', 'resource_limit'}
LOADER = ('num_batch_per_epoch', 'disable_subprocess_warning')
CONSTRUCTORS = {'', 'DefaultOptimWrapperConstructor', 'LayerDecayOptimWrapperConstructor'}
CONSTRUCTORS |= {f'LearningRateDecay{x}Constructor' for x in ('Optimizer', 'OptimWrapper')}
PACKAGES = {'mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain', 'mmbixt', 'torch'}
Part = tuple[str, Any, Registry | Callable, tuple[str, ...]]  # name, config, its class, HOOK, ...


def argument_problems(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """A message for each type that does not exist, and for each argument that it does not have."""
    for path, part, kind, others in _parts(cfg, splits):
        if not isinstance(part, Mapping):
            continue
        if kind is mm.HOOKS and part and 'type' not in part:
            right = near(path.rpartition('.')[2], within(cfg, 'default_hooks').keys() - {path[14:]})
            yield f'{path} has no type.' + (f' Is {right!r} meant?' if right else '')
        if part.get('persistent_workers') and not part.get('num_workers'):
            yield f'{path}: persistent_workers=True needs workers, and num_workers is 0.'
        if isinstance(kind, Registry) and isinstance(name := part.get('type'), str):
            with kind.switch_scope_and_registry(part.get('_scope_')) as registry:
                kind = registry.get(name)
            if kind is None:
                right = near_type(name, (cfg.get('default_scope'),))
                hint = f' Is {right!r} meant?' if right else ''
                yield f'{path}.type = {name!r} is in no registry.{hint}'
        elif isinstance(kind, Registry):
            kind = part.get('type')  # a class
        known = _arguments(kind, part) if callable(kind) else None
        if known is None:
            continue
        for key in sorted(part.keys() - {'type', '_scope_', *others, *known}):
            right = near(key, known)
            hint = (
                f'Is {right!r} meant?' if right else f'It has {", ".join(sorted(known))}. {DELETE}'
            )
            name = getattr(kind, '__name__', kind)
            yield f'{path}.{key} = {part[key]!r}: {name} has no such argument. {hint}'


def _constructor(wrapper: Mapping[str, Any]) -> str:
    return type_name({'type': wrapper.get('constructor', '')}).rpartition('.')[2]


def paramwise_notes(cfg: Mapping[str, Any], model: nn.Module | None) -> Iterator[str]:
    """A note on each key of ``paramwise_cfg`` that changes nothing: mmengine ignores it."""
    wrapper = within(cfg, 'optim_wrapper')
    constructor, known = _constructor(wrapper), PARAMWISE
    if constructor == 'LayerDecayOptimWrapperConstructor':
        known = PARAMWISE | {'decay_rate', 'decay_type', 'num_layers'}
    elif constructor not in ('', 'DefaultOptimWrapperConstructor'):  # it may read other keys
        return
    options = {'optim_wrapper.paramwise_cfg': (within(wrapper, 'paramwise_cfg'), known)}
    custom = within(wrapper, 'paramwise_cfg', 'custom_keys')
    for name in custom:
        place = f'optim_wrapper.paramwise_cfg.custom_keys.{name}'
        options[place] = (within(custom, name), {'lr_mult', 'decay_mult'})
        names = [] if model is None else [key for key, _ in model.named_parameters()]
        right = near(name, {part for key in names for part in key.split('.')})
        # keys that are similar to none may be for layers that this model does not have
        if right and not any(name in key for key in names):
            yield f'{place}: no parameter has this in its name. Is {right!r} meant?'
    options['env_cfg'] = within(cfg, 'env_cfg'), ENVIRONMENT
    for place, (part, known) in options.items():
        for key in sorted(part.keys() - known - {'_delete_'}):
            if '.custom_keys.' in place and not (key.endswith('_mult') or near(key, known)):
                continue  # mmengine copies it into the group, for optimizers and hooks that read it
            yield f'{place}.{key} is not read. What is read: {", ".join(sorted(known))}.'


def paramwise_problems(cfg: Mapping[str, Any], model: nn.Module) -> Iterator[str]:
    """The error of the constructor that gives each parameter of the model its learning rate."""
    wrapper = dict(within(cfg, 'optim_wrapper'))
    kind = wrapper.pop('constructor', 'DefaultOptimWrapperConstructor')
    paramwise = wrapper.pop('paramwise_cfg', None)
    is_known = isinstance(kind, type) or OPTIM_WRAPPER_CONSTRUCTORS.get(kind)
    if _constructor({'constructor': kind}) not in CONSTRUCTORS or not is_known:
        return
    if 'optimizer' not in wrapper:
        return
    config = dict(type=kind, optim_wrapper_cfg=wrapper, paramwise_cfg=paramwise)
    try:
        OPTIM_WRAPPER_CONSTRUCTORS.build(config).add_params([], model)
    except Exception as error:
        yield f'optim_wrapper: {explain(error, cfg.get("default_scope"))}'


def _parts(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[Part]:
    for name, hook in within(cfg, 'default_hooks').items():
        yield f'default_hooks.{name}', hook, mm.HOOKS, HOOK
    for path, hook in _numbered(cfg, 'custom_hooks'):
        yield path, hook, mm.HOOKS, HOOK
    yield 'log_processor', cfg.get('log_processor'), mm.LOG_PROCESSORS, ()
    yield 'randomness', cfg.get('randomness'), Runner.set_randomness, ()
    for split in splits:
        loader = f'{split}_dataloader'
        yield loader, cfg.get(loader), DataLoader, LOADER
        for part in ('sampler', 'batch_sampler'):
            yield f'{loader}.{part}', within(cfg, loader).get(part), mm.DATA_SAMPLERS, ()
        loop = within(cfg, f'{split}_cfg')
        if 'by_epoch' in loop and 'type' not in loop:
            by_epoch = EpochBasedTrainLoop if loop['by_epoch'] else IterBasedTrainLoop
            yield f'{split}_cfg', loop, by_epoch, LOOP
        elif 'type' in loop:
            yield f'{split}_cfg', loop, mm.LOOPS, ()
        for _, name, metric in metrics_of(cfg.get(f'{split}_evaluator')):
            if name not in INSTEAD.get(cfg.get('default_scope'), ()):  # else it is refused
                yield f'{split}_evaluator', metric, mm.METRICS, ()
    visualizer = within(cfg, 'visualizer')
    yield 'visualizer', visualizer, mm.VISUALIZERS, ()
    for path, backend in _numbered(visualizer, 'vis_backends'):
        yield f'visualizer.{path}', backend, mm.VISBACKENDS, ()
    wrapper = within(cfg, 'optim_wrapper')
    # others may read other keys, or build several optimizers
    if 'train' in splits and _constructor(wrapper) in CONSTRUCTORS and 'optimizer' in wrapper:
        yield 'optim_wrapper', {'type': 'OptimWrapper', **wrapper}, mm.OPTIM_WRAPPERS, OPTIMIZER
        yield 'optim_wrapper.optimizer', wrapper['optimizer'], mm.OPTIMIZERS, ()
    if 'train' in splits:
        constructor = {'type': wrapper['constructor']} if 'constructor' in wrapper else None
        yield 'optim_wrapper.constructor', constructor, mm.OPTIM_WRAPPER_CONSTRUCTORS, ()
        for path, schedule in _numbered(cfg, 'param_scheduler'):
            yield path, schedule, mm.PARAM_SCHEDULERS, SCHEDULE


def _numbered(cfg: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    parts = cfg.get(name) or []
    if isinstance(parts, Mapping):
        yield name, parts
        return
    for i, part in enumerate(parts):
        yield f'{name}.{i}', part


def _arguments(kind: Callable, part: Mapping[str, Any]) -> set[str] | None:
    """Names of the arguments of a function or class for a config; None if they are not known.

    Classes of the packages below pass ``**kwargs`` to the next one of their method resolution
    order; those of users may do anything with them, and so may decorators.
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
        if all(x.kind is not x.VAR_KEYWORD for x in parameters):
            return names - {'self'}
        if owner in (CheckpointHook, EMAHook):  # it passes the others on
            others = _passed_on(owner, part)
            return None if others is None else (names | others) - {'self'}
        if getattr(owner, '__module__', '').partition('.')[0] not in PACKAGES:
            return None
    return None


def _passed_on(hook: type, part: Mapping[str, Any]) -> set[str] | None:
    """Names of the arguments of what a hook of mmengine calls."""
    if hook is CheckpointHook:
        return {*inspect.signature(Runner.save_checkpoint).parameters}
    kind = part.get('ema_type', 'ExponentialMovingAverage')
    average = MODELS.get(kind) if isinstance(kind, str) else kind
    known = average and _arguments(average, {})
    return known and known - {'model'}

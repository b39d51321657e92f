"""Registries of the scope ``mmbixt``, with the modules of its components.

mmengine imports ``<scope>.registry`` for a type with this prefix, so ``mmbixt.BiXT`` works in any
config, without ``custom_imports`` and with any default scope.
"""

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module

try:
    from mmengine import registry as root
    from mmengine.logging import print_log
except ImportError as error:
    raise ImportError(
        'This part of mmbixt (not layers, attention and backbones) needs mmengine, which cannot be '
        f'imported ({error}). To install it: `pip install mmengine` (or onedl-mmengine).'
    ) from error

from mmbixt.frameworks import UNUSABLE, missing_framework

try:
    from mmbixt.checkpoints.loader import register_checkpoint_readers
except ImportError as error:
    # mmengine ignores an ImportError of `<scope>.registry`, and then does not find its types
    raise RuntimeError(f'mmbixt.registry cannot be imported: {error}') from error

SCOPE = 'mmbixt'
FRAMEWORKS = ('mmseg', 'mmdet', 'mmpretrain')


class Registry(root.Registry):
    """A child registry that looks up other names in the framework in use.

    mmengine builds configs that are inherited as ``_base_ = 'mmbixt::...'`` in the scope mmbixt.
    Names such as ``EncoderDecoder`` or ``LoadAnnotations`` belong to the default scope of the
    runner instead: mmseg, mmdet or mmpretrain.
    """

    latest_framework: str | None = None  # of the latest component found without a default scope

    def get(self, key: str) -> type | Callable | None:
        scope, name = self.split_scope_key(key)
        if scope is not None:
            return super().get(key)
        self.import_from_location()
        if name in self.module_dict:
            return self.module_dict[name]
        framework = default_scope()
        found = self.parent.get(f'{framework}.{name}') if framework else None
        if found and framework == 'mmpretrain':
            join_batch_augments()
        return found or self._get_without_scope(name)

    def _get_without_scope(self, name: str) -> Callable | None:
        """Look up a name in all frameworks, where there is no default scope.

        This happens in mmengine's hub with ``mmbixt::...``, and in inferencers with
        ``scope='mmbixt'``. They build a whole model first, whose name only one framework has; its
        parts, such as ``FPN``, are then looked up in the scope of this framework, and so are the
        other components of an inferencer, such as ``InferencerLoader``.

        Raises:
            LookupError: the frameworks have different components of this name, and no model of
                one of them was built before.
            ImportError: the name is that of mmpretrain's classifiers, and mmpretrain is missing.
        """
        found, problem = {}, None
        for framework in FRAMEWORKS:
            try:
                import_module(f'{framework}.registry')
                component = self.parent.get(f'{framework}.{name}')
            except UNUSABLE as error:
                if getattr(error, 'name', None) != framework:  # installed, but not importable
                    problem = error
                elif name == 'ImageClassifier' and framework == 'mmpretrain':
                    problem = missing_framework(name, framework, error)
                continue
            if component is not None:
                found[framework] = component
        if len(set(found.values())) > 1:
            if (framework := Registry.latest_framework) in found:
                print_log(f'{name} is from {framework}, like the model.', 'current')
                return self._within_scope(framework, found[framework])
            raise LookupError(
                f'{name} is a {self.name} of {", ".join(found)}, and there is no default scope to '
                'choose one. Call mmengine.registry.init_default_scope(cfg.default_scope) before, '
                f'or write the scope in front of the type, such as {next(iter(found))}.{name}.'
            )
        shared = super().get(name)  # of mmengine or mmcv
        if not found and shared is None and problem is not None:
            raise problem
        for framework, component in found.items():
            if component is not shared:
                return self._within_scope(framework, component)
        return shared

    @staticmethod
    def _within_scope(scope: str, build: Callable) -> Callable:
        """``build``, with its own parts looked up in ``scope``."""

        @wraps(build, updated=())
        def build_within_scope(*args, **kwargs):
            with root.DefaultScope.overwrite_default_scope(scope):
                built = build(*args, **kwargs)
            Registry.latest_framework = scope
            return built

        return build_within_scope


def default_scope() -> str | None:
    """The latest default scope other than mmbixt."""
    scopes = [instance.scope_name for instance in root.DefaultScope._instance_dict.values()]
    return next((scope for scope in reversed(scopes) if scope != SCOPE), None)


def child(name: str, locations: tuple[str, ...] = (SCOPE,)) -> Registry:
    parent = getattr(root, name)
    return Registry(parent.name, parent=parent, scope=SCOPE, locations=list(locations))


@cache
def join_batch_augments() -> None:
    """Find Mixup and CutMix in inherited configs: mmpretrain's registry of them has no parent."""
    from mmpretrain.registry import BATCH_AUGMENTS

    Registry(BATCH_AUGMENTS.name, parent=BATCH_AUGMENTS, scope=SCOPE)


MODELS = child('MODELS', ('mmbixt.backbones', 'mmbixt.necks', 'mmbixt.decode_heads'))
METRICS = child('METRICS', ('mmbixt.evaluation.registered',))
HOOKS = child('HOOKS', ('mmbixt.engine', 'mmbixt.check.sanity'))
OPTIM_WRAPPERS = child('OPTIM_WRAPPERS', ('mmbixt.engine',))
OPTIM_WRAPPER_CONSTRUCTORS = child('OPTIM_WRAPPER_CONSTRUCTORS', ('mmbixt.engine',))
FUNCTIONS = child('FUNCTIONS', ('mmbixt.engine',))
STRATEGIES = child('STRATEGIES', ('mmbixt.engine',))
TRANSFORMS = child('TRANSFORMS', ('mmbixt.check.sample',))

# mmbixt has no components of these kinds, but names of inherited configs are looked up in them.
DATASETS = child('DATASETS')
DATA_SAMPLERS = child('DATA_SAMPLERS', ('mmbixt.engine',))
EVALUATOR = child('EVALUATOR')
LOG_PROCESSORS = child('LOG_PROCESSORS')
LOOPS = child('LOOPS')
MODEL_WRAPPERS = child('MODEL_WRAPPERS')
OPTIMIZERS = child('OPTIMIZERS')
PARAM_SCHEDULERS = child('PARAM_SCHEDULERS')
TASK_UTILS = child('TASK_UTILS')
VISBACKENDS = child('VISBACKENDS')
VISUALIZERS = child('VISUALIZERS')
WEIGHT_INITIALIZERS = child('WEIGHT_INITIALIZERS')

# Stock runners read checkpoints safely when a config uses any component of mmbixt.
register_checkpoint_readers()

"""Scope ``mmbixt`` and where its components live: the only place that says so.

mmengine imports ``<scope>.registry`` when it meets a type with that prefix, so ``mmbixt.BiXT``
resolves in any config, without ``custom_imports`` and whatever the default scope.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module

try:
    from mmengine import registry as root
except ImportError as error:
    raise ImportError(
        'mmbixt (all of it but mmbixt.ops and mmbixt.layers) needs mmengine, which cannot be '
        f'imported ({error}). To install it: `pip install mmengine` (or onedl-mmengine).'
    ) from error

from mmbixt.checkpoints.loader import register_checkpoint_readers
from mmbixt.frameworks import UNUSABLE

SCOPE = 'mmbixt'
FRAMEWORKS = ('mmseg', 'mmdet')


class Registry(root.Registry):
    """A child registry that leaves to the framework at work what is not mmbixt's.

    mmengine builds a config that was inherited as ``_base_ = 'mmbixt::...'`` in the scope mmbixt.
    Names in it like ``EncoderDecoder`` or ``LoadAnnotations`` are not ours: they belong to the
    default scope of the runner, mmseg or mmdet.
    """

    def get(self, key: str) -> type | Callable | None:
        scope, name = self.split_scope_key(key)
        if scope is not None:
            return super().get(key)
        self.import_from_location()
        framework = default_scope()
        if name not in self.module_dict and framework is not None:
            found = self.parent.get(f'{framework}.{name}')
        else:
            found = super().get(key)
        return found or self._get_from_any_framework(name)

    def _get_from_any_framework(self, name: str) -> Callable | None:
        """For mmengine's hub, which builds ``mmbixt::...`` without a runner and its scope."""
        for framework in FRAMEWORKS:
            try:
                import_module(f'{framework}.registry')
            except UNUSABLE:
                continue
            found = self.parent.get(f'{framework}.{name}')
            if found is not None:
                return within_scope(framework, found)
        return None


def within_scope(scope: str, build: Callable) -> Callable:
    """``build`` with what it builds in turn looked up in ``scope``."""

    @wraps(build, updated=())
    def build_within_scope(*args, **kwargs):
        with root.DefaultScope.overwrite_default_scope(scope):
            return build(*args, **kwargs)

    return build_within_scope


def default_scope() -> str | None:
    """The latest default scope that is not mmbixt's own."""
    scopes = [instance.scope_name for instance in root.DefaultScope._instance_dict.values()]
    return next((scope for scope in reversed(scopes) if scope != SCOPE), None)


def child(name: str, locations: tuple[str, ...] = (SCOPE,)) -> Registry:
    parent = getattr(root, name)
    return Registry(parent.name, parent=parent, scope=SCOPE, locations=list(locations))


MODELS = child('MODELS', ('mmbixt.backbones', 'mmbixt.necks', 'mmbixt.decode_heads'))
METRICS = child('METRICS', ('mmbixt.evaluation',))
HOOKS = child('HOOKS', ('mmbixt.engine',))
OPTIM_WRAPPER_CONSTRUCTORS = child('OPTIM_WRAPPER_CONSTRUCTORS', ('mmbixt.engine',))

# Nothing of mmbixt lives in these; a config inherited from it is looked up in them all the same.
DATASETS = child('DATASETS')
DATA_SAMPLERS = child('DATA_SAMPLERS')
EVALUATOR = child('EVALUATOR')
LOG_PROCESSORS = child('LOG_PROCESSORS')
LOOPS = child('LOOPS')
MODEL_WRAPPERS = child('MODEL_WRAPPERS')
OPTIMIZERS = child('OPTIMIZERS')
OPTIM_WRAPPERS = child('OPTIM_WRAPPERS')
PARAM_SCHEDULERS = child('PARAM_SCHEDULERS')
TASK_UTILS = child('TASK_UTILS')
TRANSFORMS = child('TRANSFORMS')
VISBACKENDS = child('VISBACKENDS')
VISUALIZERS = child('VISUALIZERS')
WEIGHT_INITIALIZERS = child('WEIGHT_INITIALIZERS')

# Stock runners read checkpoints safely as soon as a config uses anything of mmbixt.
register_checkpoint_readers()

"""Scope ``mmbixt`` and where its components live: the only place that says so.

mmengine imports ``<scope>.registry`` when it meets a type with that prefix, so ``mmbixt.BiXT``
resolves in any config, without ``custom_imports`` and whatever the default scope.
"""

from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module

try:
    from mmengine import registry as root
    from mmengine.logging import print_log
except ImportError as error:
    raise ImportError(
        'mmbixt (all of it but mmbixt.ops and mmbixt.layers) needs mmengine, which cannot be '
        f'imported ({error}). To install it: `pip install mmengine` (or onedl-mmengine).'
    ) from error

from mmbixt.frameworks import UNUSABLE, missing_framework

try:
    from mmbixt.checkpoints.loader import register_checkpoint_readers
except ImportError as error:
    # mmengine ignores an ImportError of `<scope>.registry` and then finds none of its types
    raise RuntimeError(f'mmbixt.registry cannot be imported: {error}') from error

SCOPE = 'mmbixt'
FRAMEWORKS = ('mmseg', 'mmdet', 'mmpretrain')


class Registry(root.Registry):
    """A child registry that leaves to the framework in use what is not mmbixt's.

    mmengine builds a config that was inherited as ``_base_ = 'mmbixt::...'`` in the scope mmbixt.
    Names in it like ``EncoderDecoder`` or ``LoadAnnotations`` are not ours: they belong to the
    default scope of the runner: mmseg, mmdet or mmpretrain.
    """

    latest_framework: str | None = None  # of the latest model that was built without that scope

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
        """What a name means where no default scope says in which framework to look.

        So mmengine's hub builds ``mmbixt::...``, and an inferencer with ``scope='mmbixt'``. They
        begin with a whole model, which only one framework has; its parts, such as ``FPN``, are
        looked up in that one's scope. What an inferencer builds next, such as ``InferencerLoader``,
        is of the same framework as the model.

        Raises:
            LookupError: the frameworks have different components of this name, and no model of
                one of them was built before.
            ImportError: this is the model of all classifiers, without mmpretrain.
        """
        found, problem = {}, None
        for framework in FRAMEWORKS:
            try:
                import_module(f'{framework}.registry')
                component = self.parent.get(f'{framework}.{name}')
            except UNUSABLE as error:
                if getattr(error, 'name', None) != framework:  # it is installed, but broken
                    problem = error
                elif name == 'ImageClassifier' and framework == 'mmpretrain':
                    problem = missing_framework(name, framework, error)
                continue
            if component is not None:
                found[framework] = component
        if len(set(found.values())) > 1 and Registry.latest_framework in found:
            framework = Registry.latest_framework
            print_log(f'{name} is taken from {framework}, as the model was.', 'current')
            return self._within_scope(framework, found[framework])
        if len(set(found.values())) > 1:
            raise LookupError(
                f'{name} is a {self.name} of {", ".join(found)}, and there is no default scope '
                'that says which one is meant. Before building it call mmengine.registry.'
                'init_default_scope(cfg.default_scope), or write the scope in front of the type, '
                f'such as {next(iter(found))}.{name}.'
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
        """``build`` with what it builds in turn looked up in ``scope``."""

        @wraps(build, updated=())
        def build_within_scope(*args, **kwargs):
            with root.DefaultScope.overwrite_default_scope(scope):
                built = build(*args, **kwargs)
            Registry.latest_framework = scope
            return built

        return build_within_scope


def default_scope() -> str | None:
    """The latest default scope that is not mmbixt's own."""
    scopes = [instance.scope_name for instance in root.DefaultScope._instance_dict.values()]
    return next((scope for scope in reversed(scopes) if scope != SCOPE), None)


def child(name: str, locations: tuple[str, ...] = (SCOPE,)) -> Registry:
    parent = getattr(root, name)
    return Registry(parent.name, parent=parent, scope=SCOPE, locations=list(locations))


@cache
def join_batch_augments() -> None:
    """For Mixup and such in an inherited config: mmpretrain has them in a registry of no parent."""
    from mmpretrain.registry import BATCH_AUGMENTS

    Registry(BATCH_AUGMENTS.name, parent=BATCH_AUGMENTS, scope=SCOPE)


MODELS = child('MODELS', ('mmbixt.backbones', 'mmbixt.necks', 'mmbixt.decode_heads'))
METRICS = child('METRICS', ('mmbixt.evaluation.registered',))
HOOKS = child('HOOKS', ('mmbixt.engine',))
OPTIM_WRAPPERS = child('OPTIM_WRAPPERS', ('mmbixt.engine',))
OPTIM_WRAPPER_CONSTRUCTORS = child('OPTIM_WRAPPER_CONSTRUCTORS', ('mmbixt.engine',))
FUNCTIONS = child('FUNCTIONS', ('mmbixt.engine',))
STRATEGIES = child('STRATEGIES', ('mmbixt.engine',))

# Nothing of mmbixt lives in these; a config inherited from it is looked up in them all the same.
DATASETS = child('DATASETS')
DATA_SAMPLERS = child('DATA_SAMPLERS', ('mmbixt.engine',))
EVALUATOR = child('EVALUATOR')
LOG_PROCESSORS = child('LOG_PROCESSORS')
LOOPS = child('LOOPS')
MODEL_WRAPPERS = child('MODEL_WRAPPERS')
OPTIMIZERS = child('OPTIMIZERS')
PARAM_SCHEDULERS = child('PARAM_SCHEDULERS')
TASK_UTILS = child('TASK_UTILS')
TRANSFORMS = child('TRANSFORMS')
VISBACKENDS = child('VISBACKENDS')
VISUALIZERS = child('VISUALIZERS')
WEIGHT_INITIALIZERS = child('WEIGHT_INITIALIZERS')

# Stock runners read checkpoints safely as soon as a config uses anything of mmbixt.
register_checkpoint_readers()

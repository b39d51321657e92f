"""Registries of the scope ``mmbixt``, with the modules of its components.

mmengine imports ``<scope>.registry`` for a type with this prefix, so ``mmbixt.BiXT`` works in any
config, without ``custom_imports`` and with any default scope.
"""

from collections.abc import Callable
from importlib import import_module

from mmbixt import backbones
from mmbixt.frameworks import IMPORT_ERRORS, missing_framework

try:
    from mmengine import registry as root
    from mmengine.dataset import BaseDataset
    from mmengine.model import BaseDataPreprocessor, BaseModel

    import mmbixt.config  # noqa: F401 (for 'mmbixt::...')
    from mmbixt.checkpoints.openmmlab import log_to_the_run, replace_readers
except IMPORT_ERRORS as error:
    what = 'This part of mmbixt (not layers, attention and backbones)'
    raise missing_framework(what, 'mmengine', error) from error

SCOPE = 'mmbixt'
FRAMEWORKS = ('mmseg', 'mmdet', 'mmpretrain')


class Registry(root.Registry):
    """A child registry that looks up other names in the framework in use.

    mmengine builds configs that are inherited as ``_base_ = 'mmbixt::...'`` in the scope mmbixt.
    Names such as ``EncoderDecoder`` or ``LoadAnnotations`` belong to the default scope of the
    runner instead: mmseg, mmdet or mmpretrain.
    """

    def get(self, key: str) -> type | Callable | None:
        scope, name = self.split_scope_key(key)
        self.import_from_location()
        if scope is not None or name in self.module_dict:
            return super().get(key)
        framework = default_scope()
        component = self.parent.get(f'{framework}.{name}') if framework else None
        return component or self._find(name)

    def _find(self, name: str) -> type | Callable | None:
        """The component of this name in the first framework that has its own, or mmengine's."""
        shared = super().get(name)  # of mmengine or mmcv
        for framework in FRAMEWORKS:
            try:
                import_module(f'{framework}.registry')
                component = self.parent.get(f'{framework}.{name}')
            except (*IMPORT_ERRORS, KeyError):  # missing, or broken: its own configs say so
                continue
            if component not in (None, shared):
                enter_scope(framework, component)
                return component
        return shared


def enter_scope(framework: str, component: type | Callable) -> None:
    """Make a framework the default scope, for mmengine's hub and inferencers, which set none.

    With ``mmbixt::...`` or ``scope='mmbixt'`` they first build a model or a data set, whose name
    only one framework has, and then its parts. Parts do not change the scope.
    """
    kinds = BaseModel, BaseDataPreprocessor, BaseDataset
    is_first_built = isinstance(component, type) and issubclass(component, kinds)
    if default_scope() is None or is_first_built:
        root.init_default_scope(framework)


def default_scope() -> str | None:
    """The latest default scope other than mmbixt."""
    # mmengine's public methods return only the latest scope, which is mmbixt in inherited configs
    scopes = [instance.scope_name for instance in root.DefaultScope._instance_dict.values()]
    return next((scope for scope in reversed(scopes) if scope != SCOPE), None)


def sub_registry(name: str, locations: tuple[str, ...] = (SCOPE,)) -> Registry:
    parent = getattr(root, name)
    return Registry(parent.name, parent=parent, scope=SCOPE, locations=list(locations))


MODELS = sub_registry('MODELS', ('mmbixt.necks', 'mmbixt.decode_heads', 'mmbixt.classification'))
METRICS = sub_registry('METRICS', ('mmbixt.evaluation.registered',))
HOOKS = sub_registry('HOOKS', ('mmbixt.engine', 'mmbixt.check.sanity'))
OPTIM_WRAPPER_CONSTRUCTORS = sub_registry('OPTIM_WRAPPER_CONSTRUCTORS', ('mmbixt.engine',))
FUNCTIONS = sub_registry('FUNCTIONS', ('mmbixt.engine',))
LOG_PROCESSORS = sub_registry('LOG_PROCESSORS', ('mmbixt.engine',))
STRATEGIES = sub_registry('STRATEGIES', ('mmbixt.engine',))
TRANSFORMS = sub_registry('TRANSFORMS', ('mmbixt.check.sample',))

# mmbixt has no components of these kinds, but names of inherited configs are looked up in them.
DATA_SAMPLERS = sub_registry('DATA_SAMPLERS', ('mmbixt.engine',))
DATASETS = sub_registry('DATASETS')
for name in (
    *('EVALUATOR', 'LOOPS', 'MODEL_WRAPPERS', 'OPTIMIZERS', 'OPTIM_WRAPPERS', 'PARAM_SCHEDULERS'),
    *('TASK_UTILS', 'VISBACKENDS', 'VISUALIZERS', 'WEIGHT_INITIALIZERS'),
):
    sub_registry(name)

for name in backbones.__all__:  # they import torch alone
    MODELS.register_module(module=getattr(backbones, name))

replace_readers()
log_to_the_run()

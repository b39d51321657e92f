"""Errors about missing frameworks.

mmengine, mmcv, mmsegmentation, mmdet and mmpretrain are not requirements of mmbixt's distribution:
there are two distributions of each with the same modules, and installing both breaks them.
"""

from collections.abc import Callable, Iterable
from importlib import import_module

from mmengine.registry import Registry

INSTALL = {
    'mmcv': '`mim install "mmcv>=2.0.0,<2.2.0"` (or onedl-mmcv)',
    'mmseg': '`pip install mmsegmentation` (or onedl-mmsegmentation)',
    'mmdet': '`pip install mmdet` (or onedl-mmdetection)',
    'mmpretrain': '`pip install .[cls]` in a checkout of mmbixt, or `pip install mmpretrain` '
    '(or onedl-mmpretrain)',
}

# whose classes are known; others are of projects
PACKAGES = {'mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain', 'mmbixt', 'torch'}


def is_of_project(thing: object) -> bool:
    """Whether a class, function or object is of a project: what it does is not known."""
    module = getattr(thing, '__module__', None) or 'builtins'
    return module.partition('.')[0] not in {*PACKAGES, 'builtins'}


# errors of importing a missing, incomplete or incompatible framework: AssertionError for versions
# of mmcv and mmengine; TypeError in mmpretrain if transformers is too new; KeyError in a second
# import after such an error, because some components are registered already
UNUSABLE = (ImportError, AssertionError, TypeError, KeyError)


def missing_framework(what: str, framework: str, problem: Exception) -> ImportError:
    """The error for ``what`` that needs a framework: the reason, and how to install it."""
    advice = f'To install it: {INSTALL[framework]}.'
    if isinstance(problem, TypeError):
        advice = (
            'mmpretrain, which mmseg and mmdet import if it is installed, cannot be imported '
            'with transformers 5: remove one of the two.'
        )
    return ImportError(f'{what} needs {framework}, which cannot be imported ({problem}). {advice}')


def import_problem(module: str) -> Exception | None:
    """The error of importing a module of a framework, or None.

    It is called before parts of mmbixt are imported that need the module, so that errors in mmbixt
    itself are not hidden.
    """
    try:
        import_module(module)
    except UNUSABLE as error:
        return error
    return None


def register_missing(
    registry: Registry, names: Iterable[str], framework: str, problem: Exception
) -> Callable[[str], object]:
    """Register components whose framework is missing: building one raises an error with advice.

    mmengine imports all locations of a registry to find one type, so importing a location must not
    raise an error: other components of mmbixt keep working.

    Args:
        registry: registry of the components.
        names: names of the components.
        framework: the missing framework, a key of ``INSTALL``.
        problem: the error of importing it.

    Returns:
        A module-level ``__getattr__`` that raises the same error when a name is imported.
    """
    names = tuple(names)

    def make_builder(name: str) -> Callable:
        def build(*args, **kwargs):
            raise missing_framework(f'mmbixt.{name}', framework, problem) from problem

        return build

    for name in names:
        registry.register_module(name=name, module=make_builder(name))

    def module_getattr(name: str) -> object:
        if name in names:
            make_builder(name)()
        raise AttributeError(name)

    return module_getattr

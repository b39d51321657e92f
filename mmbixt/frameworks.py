"""Errors about a framework that is missing.

mmbixt does not *require* mmengine, mmcv, mmsegmentation, mmdet or mmpretrain in the sense of pip:
two distributions of each exist that ship the same modules, and both at once break each other.
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

# what importing an absent, incomplete or mismatched framework raises: they assert the versions of
# mmcv and mmengine; mmpretrain derives classes from None if transformers is too new; and what was
# registered before such an error is there already when it is imported once more
UNUSABLE = (ImportError, AssertionError, TypeError, KeyError)


def missing_framework(what: str, framework: str, problem: Exception) -> ImportError:
    """The error that says what needs a framework, why it cannot be imported and how to get it."""
    advice = f'To install it: {INSTALL[framework]}.'
    if isinstance(problem, TypeError):
        advice = (
            'mmpretrain, which mmseg and mmdet import where it is installed, cannot be '
            'imported beside transformers 5: remove one of the two.'
        )
    return ImportError(f'{what} needs {framework}, which cannot be imported ({problem}). {advice}')


def import_problem(module: str) -> Exception | None:
    """Why a module of a framework cannot be imported, or None if it can.

    Call it before a part of mmbixt that builds on the module is imported: what goes wrong in
    that import is then a fault of mmbixt, and is raised as it is.
    """
    try:
        import_module(module)
    except UNUSABLE as error:
        return error
    return None


def register_missing(
    registry: Registry, names: Iterable[str], framework: str, problem: Exception
) -> Callable[[str], object]:
    """Register components whose framework is missing: building one raises what to install.

    The other components of mmbixt keep working: mmengine imports all locations of a registry to
    find one type, so importing a location must not raise.

    Args:
        registry: where the components would be registered.
        names: of the components.
        framework: that they need, a key of ``INSTALL``.
        problem: why it cannot be imported.

    Returns:
        A module-level ``__getattr__`` that raises the same error when a name is imported.
    """
    names = tuple(names)

    def raise_missing(name: str) -> None:
        raise missing_framework(f'mmbixt.{name}', framework, problem) from problem

    def make_builder(name: str) -> Callable:
        def build(*args, **kwargs):
            raise_missing(name)

        return build

    for name in names:
        registry.register_module(name=name, module=make_builder(name))

    def module_getattr(name: str) -> object:
        if name in names:
            raise_missing(name)
        raise AttributeError(name)

    return module_getattr

"""Errors about missing frameworks: ``except IMPORT_ERRORS as error: raise missing_framework(...)``.

mmengine, mmcv, mmsegmentation, mmdet and mmpretrain are not requirements of mmbixt's distribution:
there are two distributions of each with the same modules, and installing both breaks them.
"""

from collections.abc import Callable, Sequence
from typing import Any

# errors of importing a missing framework, or one that refuses the version of mmcv or mmengine;
# TypeError: mmpretrain 1.2, which mmseg and mmdet import, beside transformers 5
IMPORT_ERRORS = (ImportError, AssertionError, TypeError)


def missing_framework(what: str, framework: str, problem: Exception) -> ImportError:
    """The error for ``what`` that needs a framework."""
    text = f'{what} needs {framework}, which cannot be imported: {problem}.'
    if 'NoneType takes no arguments' in str(problem):
        text += ' mmpretrain 1.2 does not work beside transformers 5.'
    return ImportError(text)


def register_missing(
    registry: Any, names: Sequence[str], framework: str, problem: Exception
) -> Callable[[str], object]:
    """Register components whose framework is missing: building one raises an error with advice.

    mmengine imports all locations of a registry to find one type, so importing a location must not
    raise an error: other components of mmbixt keep working.

    Returns:
        A module-level ``__getattr__`` that raises the same error when a component is imported.
    """

    def refuse(name: str) -> Callable:
        def build(*_: object, **__: object) -> None:
            raise missing_framework(f'mmbixt.{name}', framework, problem) from problem

        return build

    for name in names:
        registry.register_module(name=name, module=refuse(name))

    def module_getattr(attribute: str) -> None:
        if attribute in names:
            refuse(attribute)()
        raise AttributeError(attribute)

    return module_getattr

"""What to say where a framework is missing.

mmbixt does not *require* mmengine, mmcv, mmsegmentation or mmdet in the sense of pip: two
distributions of each exist that ship the same modules, and both at once break each other.
"""

from collections.abc import Callable, Iterable

from mmengine.registry import Registry

INSTALL = {
    'mmcv': '`mim install "mmcv>=2.0.0,<2.2.0"` (or onedl-mmcv)',
    'mmseg': '`pip install mmsegmentation` (or onedl-mmsegmentation)',
    'mmdet': '`pip install mmdet` (or onedl-mmdetection)',
}

# what importing an absent, incomplete or mismatched framework raises: mmseg and mmdet assert the
# versions of mmcv and mmengine
UNUSABLE = (ImportError, AssertionError)


def stand_in(
    registry: Registry, names: Iterable[str], framework: str, error: BaseException
) -> Callable[[str], object]:
    """Register builders that say what to install, in place of parts whose framework is missing.

    The other parts of mmbixt keep working: mmengine imports every location of a registry to find
    one type, so a location must not raise.

    Returns:
        A module-level ``__getattr__`` that raises the same error when a name is imported.
    """
    names = tuple(names)

    def explain(name: str) -> ImportError:
        return ImportError(
            f'mmbixt.{name} needs {framework}, which cannot be imported ({error}). '
            f'To install it: {INSTALL[framework]}.'
        )

    def builder(name: str) -> Callable:
        def build(*args, **kwargs):
            raise explain(name) from error

        return build

    for name in names:
        registry.register_module(name=name, module=builder(name))

    def module_getattr(name: str) -> object:
        if name in names:
            raise explain(name) from error
        raise AttributeError(name)

    return module_getattr

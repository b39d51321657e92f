"""One file per paper."""

from mmbixt import registry  # noqa: F401 (first: it says what to install if mmengine is missing)
from mmbixt.backbones.bixt import BiXT

__all__ = ['BiXT']

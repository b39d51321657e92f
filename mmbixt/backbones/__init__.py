"""One file per paper."""

from mmbixt.backbones.bixt import BiXT

__all__ = ['BiXT']

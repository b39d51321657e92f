"""Efficient vision transformers for dense prediction, as OpenMMLab components."""

import sys

from mmbixt.version import __version__

__all__ = ['__version__']

if sys.modules.get('mmengine'):  # it may be reading a config that inherits 'mmbixt::...'
    import mmbixt.config  # noqa: F401

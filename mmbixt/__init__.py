"""Efficient vision transformers for dense prediction, as OpenMMLab components."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution

from mmbixt.version import __version__

__all__ = ['__version__']

try:
    from mmengine.config.utils import MODULE2PACKAGE
except ImportError:  # layers, attention and backbones work without mmengine; others raise errors
    MODULE2PACKAGE = {}

# Lets mmengine resolve `_base_ = 'mmbixt::bixt/...'`: it finds no distribution 'mmbixt.version' and
# uses the folder of this module. (For editable installs the location of a distribution is wrong.)
MODULE2PACKAGE['mmbixt'] = 'mmbixt.version'

# The OneDL fork's mmengine looks for `mmseg::...` in OpenMMLab's distribution, and its hub would
# also install OpenMMLab's distribution. The name of the module works for both.
with suppress(PackageNotFoundError):
    distribution('onedl-mmsegmentation')
    MODULE2PACKAGE['mmseg'] = 'mmseg'

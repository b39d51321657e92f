"""Efficient vision transformers for dense prediction, as OpenMMLab components."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution

from mmbixt.version import __version__

__all__ = ['__version__']

try:
    from mmengine.config.utils import MODULE2PACKAGE
except ImportError:  # mmbixt.ops works without it; everything else says that it is missing
    MODULE2PACKAGE = {}

# Lets mmengine resolve `_base_ = 'mmbixt::bixt/...'`. It looks for an installed distribution of
# this name and, finding none, for the folder of the module of this name. That folder is right
# however mmbixt was installed; the location of a distribution is not, if it is editable.
MODULE2PACKAGE['mmbixt'] = 'mmbixt.version'

# The OneDL fork's mmengine looks for `mmseg::...` in OpenMMLab's distribution, and its hub would
# install that beside the fork. The name of the module leads to either.
with suppress(PackageNotFoundError):
    distribution('onedl-mmsegmentation')
    MODULE2PACKAGE['mmseg'] = 'mmseg'

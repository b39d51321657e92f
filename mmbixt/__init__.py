"""Efficient vision transformers for dense prediction, as OpenMMLab components."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution

from mmbixt.version import __version__

__all__ = ['__version__']

try:
    from mmengine.config.utils import MODULE2PACKAGE
except ImportError:  # mmbixt.ops works without mmengine; other parts raise an error
    MODULE2PACKAGE = {}

# Lets mmengine resolve `_base_ = 'mmbixt::bixt/...'`. It looks for a distribution 'mmbixt.version',
# finds none, and takes the folder of this module, which is correct for editable installs, too; the
# location of their distribution is not.
MODULE2PACKAGE['mmbixt'] = 'mmbixt.version'

# The OneDL fork's mmengine looks for `mmseg::...` in OpenMMLab's distribution, and its hub would
# install that beside the fork. The name of the module leads to either.
with suppress(PackageNotFoundError):
    distribution('onedl-mmsegmentation')
    MODULE2PACKAGE['mmseg'] = 'mmseg'

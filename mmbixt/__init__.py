"""Efficient vision transformers for dense prediction, as OpenMMLab components."""

from importlib.util import find_spec

from mmbixt.version import __version__

__all__ = ['__version__']

if find_spec('mmengine') is not None:  # mmbixt.ops works without it
    from mmengine.config.utils import MODULE2PACKAGE

    # Lets mmengine resolve `_base_ = 'mmbixt::bixt/...'`. It looks for an installed distribution of
    # this name and, finding none, for the folder of the module of this name. That folder is right
    # however mmbixt was installed; a distribution's location is not the package's if editable.
    MODULE2PACKAGE['mmbixt'] = 'mmbixt.version'

"""``import mmbixt.timm`` adds the networks to timm's registry: ``timm.create_model(name)``."""

from mmbixt.timm.entrypoints import default_cfgs, register

__all__ = ['NAMES', 'register']

NAMES = tuple(default_cfgs)

"""Few groups of parameters, and learning rates that fall from the head to the first layer."""

import logging
from typing import Any

from mmengine.logging import MMLogger
from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from mmbixt.backbones.base import DenseBackbone, layer_groups, numbers_of
from mmbixt.errors import UserError
from mmbixt.registry import OPTIM_WRAPPER_CONSTRUCTORS


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class FewGroupsConstructor(DefaultOptimWrapperConstructor):
    """mmengine's constructor with one group for all parameters of the same settings.

    mmengine's own makes a group for each parameter, and an optimizer starts several kernels for
    each group. ``paramwise_cfg`` has the same settings, and ``decay_rate`` for layer-wise decay of
    the learning rate: group ``i`` of the ``n`` groups of the backbone
    (:func:`mmbixt.backbones.base.layer_groups`) has ``lr * decay_rate ** (n - i)`` for
    ``i = 0 ... n - 1``; parameters outside of the backbone have ``lr``. As in mmseg's
    constructor of this kind, norms and biases then have no weight decay unless ``paramwise_cfg``
    says otherwise.

    Example:
        >>> optim_wrapper = dict(
        ...     constructor='mmbixt.FewGroupsConstructor',
        ...     paramwise_cfg=dict(decay_rate=0.9),
        ... )
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None) -> None:
        paramwise_cfg = dict(paramwise_cfg or {})
        self.decay_rate = paramwise_cfg.pop('decay_rate', None)
        if (kind := paramwise_cfg.pop('decay_type', 'layer_wise')) != 'layer_wise':
            raise ValueError(f"paramwise_cfg.decay_type={kind!r} must be 'layer_wise'.")
        lr = optim_wrapper_cfg['optimizer'].get('lr')
        if not isinstance(lr, (int, float, type(None))):
            raise UserError(f'optim_wrapper.optimizer.lr={lr!r} is no number.')
        has_decay = optim_wrapper_cfg['optimizer'].get('weight_decay') is not None
        if self.decay_rate is not None and has_decay:
            for kind in ('norm', 'bias', 'flat'):
                paramwise_cfg.setdefault(f'{kind}_decay_mult', 0.0)
        paramwise_cfg.setdefault('custom_keys', {})  # without any, mmengine calls no add_params
        super().__init__(optim_wrapper_cfg, paramwise_cfg)

    def add_params(
        self, params: list[dict], module: nn.Module, prefix: str = '', **kwargs: Any
    ) -> None:
        """Append groups for the parameters of a module and of its children to ``params``."""
        if prefix:  # not the whole model, which calls this method for its parts
            return super().add_params(params, module, prefix, **kwargs)
        log = MMLogger.get_current_instance()
        level = log.level
        log.setLevel(logging.ERROR)  # mmengine writes lines for each parameter
        super().add_params(params, module, **kwargs)
        log.setLevel(level)
        scales = {} if self.decay_rate is None else self.layer_scales(module)
        defaults = dict(lr=self.base_lr, weight_decay=self.base_wd)
        defaults = {key: value for key, value in defaults.items() if value is not None}
        joined: dict[str, dict] = {}
        # each parameter once: layers may share weights (BiXT's iterative attention)
        first = {id(group['params'][0]): group for group in reversed(params)}
        for group in reversed(first.values()):
            weights = group.pop('params')
            for factor in ('lr_mult', 'decay_mult'):  # of custom_keys; mmengine has applied them
                group.pop(factor, None)
            settings = defaults | group
            if scales:
                settings['lr'] *= scales.get(id(weights[0]), 1.0)
            name = ', '.join(f'{key}={value}' for key, value in sorted(settings.items()))
            joined.setdefault(name, {**settings, 'params': []})['params'] += weights
        params[:] = joined.values()
        count = len([*module.parameters()])  # with frozen ones
        for name, group in joined.items():
            log.info(f'{len(group["params"])} of {count} parameters: {name}')

    def layer_scales(self, model: nn.Module) -> dict[int, float]:
        """The factor of the learning rate of each parameter in a backbone, by its id."""
        scales = {}
        for part in model.modules():
            if isinstance(part, DenseBackbone):
                groups = layer_groups(part)
                for weight, layer in numbers_of(groups).items():
                    scales[weight] = self.decay_rate ** (len(groups) - layer)
        if not scales:
            raise ValueError(f'{type(model).__name__} has no backbone of mmbixt.')
        return scales

"""Learning rates that fall from the head to the first layer, for fine-tuning pretrained models."""

from collections.abc import Iterable
from typing import Any

from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from mmbixt.backbones.base import DenseBackbone
from mmbixt.registry import OPTIM_WRAPPER_CONSTRUCTORS


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """Layer-wise learning-rate decay for segmentors and detectors with a backbone of mmbixt.

    Layer ``i`` of the ``n`` layers of a backbone (``DenseBackbone.get_layer_depth``) has the
    learning rate ``lr * decay_rate ** (n - i)`` for ``i = 0 ... n - 1``; parameters outside of the
    backbone have ``lr``. ``paramwise_cfg`` needs the factor ``decay_rate``, and may have all
    settings of mmengine's constructor (``custom_keys``, ``norm_decay_mult`` ...). As in mmseg's
    constructor of this kind, norms and biases have no weight decay unless it says otherwise.

    For classifiers, mmpretrain's ``LearningRateDecayOptimWrapperConstructor`` does the same, except
    where layers share weights (BiXT's iterative attention).

    Example:
        >>> optim_wrapper = dict(
        ...     constructor='mmbixt.LayerDecayOptimWrapperConstructor',
        ...     paramwise_cfg=dict(decay_rate=0.9),
        ... )
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None) -> None:
        paramwise_cfg = dict(paramwise_cfg or {})
        self.decay_rate = paramwise_cfg.pop('decay_rate')
        if (kind := paramwise_cfg.pop('decay_type', 'layer_wise')) != 'layer_wise':
            raise ValueError(f"paramwise_cfg.decay_type={kind!r} must be 'layer_wise'.")
        if optim_wrapper_cfg['optimizer'].get('weight_decay') is not None:
            for kind in ('norm', 'bias', 'flat'):
                paramwise_cfg.setdefault(f'{kind}_decay_mult', 0.0)
        paramwise_cfg.setdefault('custom_keys', {})  # without any, mmengine makes no groups
        super().__init__(optim_wrapper_cfg, paramwise_cfg)

    def add_params(
        self, params: list[dict], module: nn.Module, prefix: str = '', **kwargs: Any
    ) -> None:
        """Append one group for each parameter of a module and of its children to ``params``."""
        super().add_params(params, module, prefix, **kwargs)
        if prefix:  # not the whole model, which calls this method for its parts
            return
        scales = {}  # by the ids of parameters
        for part in module.modules():
            if isinstance(part, DenseBackbone):
                for name, weight in part.named_parameters():
                    layer, count = part.get_layer_depth(name)
                    scales[id(weight)] = self.decay_rate ** (count - 1 - layer)
        if not scales:
            raise ValueError(f'{type(module).__name__} has no backbone of mmbixt.')
        # layers may share weights (BiXT's iterative attention)
        params[:] = {id(group['params'][0]): group for group in params}.values()
        for group in params:
            group['lr_scale'] = scales.get(id(group['params'][0]), 1.0)
            group['lr'] = group.get('lr', self.base_lr) * group['lr_scale']
        params[:] = join_groups(params)


def join_groups(groups: Iterable[dict]) -> list[dict]:
    """One group for all parameters with the same settings: optimizers are faster with few."""
    joined: dict[tuple, dict] = {}
    for group in groups:
        settings = tuple(sorted((key, value) for key, value in group.items() if key != 'params'))
        joined.setdefault(settings, {**group, 'params': []})['params'] += group['params']
    return list(joined.values())

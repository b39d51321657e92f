"""Learning rates that fall from the head to the first layer, for fine-tuning pretrained models."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any

from mmengine.logging import MMLogger, print_log
from mmengine.optim import DefaultOptimWrapperConstructor
from torch import nn

from mmbixt.backbones.base import DenseBackbone
from mmbixt.progress import errors_only
from mmbixt.registry import OPTIM_WRAPPER_CONSTRUCTORS

SHOWN = 12  # most names of parts with one learning rate
DECAY_TYPES = ('layer_wise', 'stage_wise')


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """Layer-wise learning-rate decay for all backbones of mmbixt.

    Layer ``i`` of the ``n`` layers of a backbone (``DenseBackbone.layers``) has the learning rate
    ``lr * decay_rate ** (n - i)`` for ``i = 0 ... n - 1``; parameters outside of the backbone have
    ``lr``. Settings in ``paramwise_cfg``, in addition to those of mmengine's constructor
    (``custom_keys``, ``norm_decay_mult`` ...):

    - ``decay_rate``: factor from one layer to the one before, above 0 and at most 1.
    - ``decay_type``: 'layer_wise' (the default), or 'stage_wise' for one learning rate per stage
      (BiFormer, BiSA-Swin).

    As in mm's constructors of this kind, norms and biases have no weight decay unless
    ``paramwise_cfg`` says otherwise.

    Example:
        >>> optim_wrapper = dict(
        ...     constructor='mmbixt.LayerDecayOptimWrapperConstructor',
        ...     paramwise_cfg=dict(decay_rate=0.9),
        ... )
    """

    def _validate_cfg(self) -> None:
        super()._validate_cfg()
        cfg = self.paramwise_cfg = dict(self.paramwise_cfg)
        rate = cfg.get('decay_rate', 'missing')
        if not isinstance(rate, (int, float)) or not 0 < rate <= 1:
            raise ValueError(
                f'paramwise_cfg.decay_rate is {rate}: layer-wise decay needs a number above 0 '
                'and at most 1, such as 0.9.'
            )
        if cfg.setdefault('decay_type', 'layer_wise') not in DECAY_TYPES:
            kinds = ', '.join(DECAY_TYPES)
            raise ValueError(
                f'paramwise_cfg.decay_type={cfg["decay_type"]!r} is not one of {kinds}.'
            )
        if self.base_wd is not None:
            for kind in ('norm_decay_mult', 'bias_decay_mult', 'flat_decay_mult'):
                cfg.setdefault(kind, 0.0)

    def add_params(
        self, params: list[dict], module: nn.Module, prefix: str = '', **kwargs: Any
    ) -> None:
        """Append one group for each parameter of a module and of its children to ``params``."""
        if prefix:
            super().add_params(params, module, prefix, **kwargs)
        else:  # the whole model; it calls this method for its parts
            # mmengine would log each rate, but without its scale
            with errors_only(MMLogger.get_current_instance()):
                super().add_params(params, module, prefix, **kwargs)
            scales = self._scales(module)
            for group in params:
                group['lr_scale'] = scales.get(id(group['params'][0]), 1.0)
                group['lr'] = group.get('lr', self.base_lr) * group['lr_scale']
            params[:] = join_groups(params)
            print_log(f'Learning rates before the schedule:\n{table(module, params)}', 'current')

    def _scales(self, model: nn.Module) -> dict[int, float]:
        """Factors of the learning rate, by the ``id`` of each parameter of a backbone."""
        backbones = [part for part in model.modules() if isinstance(part, DenseBackbone)]
        if not backbones:
            raise ValueError(
                f'{type(model).__name__} has no backbone of mmbixt. For other backbones use the '
                'constructors of their own packages.'
            )
        rate = self.paramwise_cfg['decay_rate']
        by_layer = self.paramwise_cfg['decay_type'] == 'layer_wise'
        scales = {}
        for backbone in backbones:
            layers = backbone.layers() if by_layer else backbone.freezable_stages()
            for i, layer in enumerate(layers):
                scales.update((id(p), rate ** (len(layers) - i)) for p in parameters_of(layer))
        return scales


def parameters_of(parts: Iterable[nn.Module | nn.Parameter]) -> Iterable[nn.Parameter]:
    for part in parts:
        yield from (part.parameters() if isinstance(part, nn.Module) else [part])


def table(model: nn.Module, groups: Sequence[dict]) -> str:
    """The learning rates of parameter groups, in lines with the parts of the model that have them.

    A part is named instead of its parameters if all of them have this rate.
    """
    by_id = {id(p): rate_of(group) for group in groups for p in group['params']}
    named = dict(model.named_parameters())
    # None: frozen, also if the optimizer has it
    rates = {name: by_id.get(id(p)) if p.requires_grad else None for name, p in named.items()}
    inside = defaultdict(set)  # rates within each part of the model
    for name, rate in rates.items():
        for part in _parts(name):
            inside[part].add(rate)
    lines = [f'{"":>11}  parameters']
    for rate in sorted({*rates.values()}, key=lambda rate: rate or 0.0):
        names = [name for name in rates if rates[name] == rate]
        parts = [next(p for p in _parts(name) if len(inside[p]) == 1) for name in names]
        count = sum(named[name].numel() for name in names)
        what = 'not trained' if rate is None else f'{rate:.3g}'
        lines.append(f'{what:>11}  {count:>10,}  {_listing(dict.fromkeys(parts))}')
    without = [p for group in groups if group.get('weight_decay') == 0 for p in group['params']]
    if without and len({group.get('weight_decay') for group in groups}) > 1:
        lines.append(f'Without weight decay: {sum(p.numel() for p in without):,} parameters')
    return '\n'.join(lines)


def rate_of(group: dict) -> float:
    """The learning rate of a parameter group before the schedule."""
    return group.get('initial_lr', group['lr'])


def _listing(parts: Collection[str]) -> str:
    """The names; where there are many, 'blocks.*.norm (12)' for those that differ in a number."""
    if len(parts) <= SHOWN:
        return ', '.join(parts)
    alike = defaultdict(list)
    for part in parts:
        alike[re.sub(r'\.\d+(?=\.|$)', '.*', part)].append(part)
    texts = (f'{key} ({len(all_)})' if len(all_) > 1 else all_[0] for key, all_ in alike.items())
    return ', '.join(texts)


def _parts(name: str) -> Iterable[str]:
    """'a', 'a.b' and 'a.b.c' for 'a.b.c'."""
    return accumulate(name.split('.'), '{}.{}'.format)


def join_groups(groups: Iterable[dict]) -> list[dict]:
    """One group for all parameters with the same settings: optimizers are faster with few."""
    joined: dict[tuple, dict] = {}
    for group in groups:
        settings = tuple(sorted((key, value) for key, value in group.items() if key != 'params'))
        joined.setdefault(settings, {**group, 'params': []})['params'] += group['params']
    return list(joined.values())

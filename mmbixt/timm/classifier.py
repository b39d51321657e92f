"""The authors' classifiers, with what timm expects of a model."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from timm.layers import Format, nchw_to
from torch import Tensor, nn

from mmbixt.backbones.arch import check_choice
from mmbixt.backbones.base import (
    DenseBackbone,
    LayerInfo,
    freezable_stages,
    layer_groups,
    numbers_of,
)
from mmbixt.backbones.weights import classifier_names
from mmbixt.checkpoints.state_dict import rename, unwrap
from mmbixt.layers import as_output, channels_last
from mmbixt.layers.initialise import init_linear

PARTS = re.compile(r'^(backbone|neck)\.|(?<=^head\.)fc\.')  # of mmpretrain's ImageClassifier


class Classifier(nn.Module):
    """The authors' classifier with timm's methods and arguments, and ``options`` of the backbone.

    Inherit from this class first, then from the final layers
    (:class:`mmbixt.backbones.final_layers.FinalLayers`), then from the backbone. ``img_size`` has
    no effect, because the networks take images of any size.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        global_pool: str | None = None,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        img_size: int | Sequence[int] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        if 'out_indices' in options:  # the layers after these would be missing
            raise TypeError('out_indices needs features_only=True.')
        options = {**self.in_classifier, **options, 'drop_path_rate': drop_path_rate}
        super().__init__(in_channels=in_chans, **options)
        self.in_chans = in_chans
        self.num_features = self.head_hidden_size = self.out_channels[-1]
        self.add_final_layers(self.num_features, **self.final_options())
        self.head_drop = nn.Dropout(drop_rate)
        self.reset_classifier(num_classes, self.pools[0] if global_pool is None else global_pool)
        self.feature_info = []
        for layer in self.layer_list():
            if layer.map_index is not None:
                stage = '.'.join(layer.name.split('.')[:2])  # the layer, if there are no stages
                info = dict(num_chs=layer.width, reduction=layer.stride, module=stage)
                self.feature_info.append(info)
        self.to(device=device, dtype=dtype).train()  # ``norm_eval`` is for the last norm as well

    @property
    def may_be_missing(self) -> str:
        """Files of backbones have no head, which then stays random."""
        return rf'head\.|{super().may_be_missing}'

    def last_output(self, layer: LayerInfo, state: Any) -> Tensor:
        return state[0] if self.reads_latents else self.feature_map(state, layer.norm)

    def forward_features(self, x: Tensor) -> Tensor:
        state = self.embed(channels_last(x))
        for layer in self.layer_list():
            state = self.step(layer, state)
        return self.finish(self.last_output(layer, state))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """(B,C) with ``pre_logits``; logits (B,num_classes) without."""
        x = self.head_drop(self.pool(x) if self.global_pool else x)
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = 'NCHW',
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """The feature maps after some layers, with :meth:`forward_features` unless
        ``intermediates_only``. With ``norm`` the feature maps pass through the final norm, if that
        norm fits them; with ``stop_early`` the output of the last of these layers is returned.
        """
        output_fmt, final = Format(output_fmt), len(self.feature_info) - 1
        take = take_indices(indices, final + 1)
        last = take[-1] if stop_early or intermediates_only else None
        if last == final and not intermediates_only:  # a layer without a feature map may follow
            last = None
        maps, state = [], self.embed(channels_last(x))
        for layer in self.layer_list():
            state = self.step(layer, state)
            if layer.map_index in take:
                y = self.feature_map(state, layer.norm if norm else None)
                maps.append(self.normalise(y, layer.map_index == final) if norm else y)
            if last is not None and layer.map_index == last:
                break
        maps = [as_output(nchw_to(y, output_fmt)) for y in maps]
        if intermediates_only:
            return maps
        out = self.last_output(layer, state)
        return (self.finish(out) if last is None else out), maps

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove what some feature maps do not need; the indices from 0 are returned."""
        take = take_indices(indices, len(self.feature_info))
        is_cut = take[-1] + 1 < len(self.feature_info)
        if prune_head or is_cut:
            remove_layers_after(self, take[-1])
        self.remove_final_layers(prune_norm or is_cut, prune_head)
        self.feature_info = self.feature_info[: take[-1] + 1]
        if prune_head:
            self.reset_classifier(0, '')
        return take

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        if global_pool is not None:
            check_choice('global_pool', global_pool, self.pools)
            self.global_pool = global_pool
        self.num_classes, self.head = num_classes, nn.Identity()
        if num_classes > 0:
            weight = next(self.parameters())
            self.head = nn.Linear(self.num_features, num_classes).to(weight.device, weight.dtype)
            init_linear(self.head)
        self.head.train(self.training)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.with_cp = enable

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.endswith(self.no_decay)}

    def group_matcher(self, coarse: bool = False) -> Callable[[str], float]:
        """The number of a parameter's layer, or of its stage if ``coarse``, by its name.

        Tokens of the model are in the first group, as in timm, the final layers in the last but
        one, and the head in the last.
        """
        numbers = numbers_of(freezable_stages(self) if coarse else layer_groups(self))
        numbers.update((id(x), 0) for x in self.parameters(recurse=False))
        numbers.update((id(x), math.inf) for x in self.head.parameters())
        last = max(n for n in numbers.values() if n < math.inf)
        return lambda name: numbers.get(id(self.get_parameter(name)), last)


def remove_layers_after(backbone: DenseBackbone, map_index: int) -> None:
    """Keep what leads to a feature map."""
    layers = backbone.layer_list()
    first = 1 + next(i for i, layer in enumerate(layers) if layer.map_index == map_index)
    for layer in reversed(layers[first:]):
        for module in (layer.module, layer.downsample):
            if module is not None:
                remove(backbone, next(k for k, x in backbone.named_modules() if x is module))


def remove(model: nn.Module, name: str) -> None:
    """Remove a module, and the containers that are empty without it."""
    owner, _, key = name.rpartition('.')
    delattr(model.get_submodule(owner), key)
    if not list(model.get_submodule(owner).children()):
        remove(model, owner)


def take_indices(indices: int | Sequence[int] | None, count: int) -> list[int]:
    """Layers from 0: all for None, the last n for an int."""
    if indices is None or isinstance(indices, int):
        indices = range(-(count if indices is None else indices), 0)
    if not indices or not all(-count <= i < count for i in indices):
        raise ValueError(f'indices={tuple(indices)}: there are {count} feature maps.')
    return sorted(i % count for i in indices)


@cache
def classifier_of(family: type[DenseBackbone]) -> type[Classifier]:
    """The authors' classifier of a family, for timm."""
    name, bases = f'{family.__name__}Classifier', (Classifier, family.final_layers, family)
    globals()[name] = kind = type(name, bases, dict(__doc__=family.__doc__))  # pickle looks there
    return kind


def checkpoint_filter_fn(state: Mapping[str, Any], model: Classifier) -> dict[str, Tensor]:
    """The weights of a file of the authors, or of mmpretrain's ``ImageClassifier``, for a model."""
    names = classifier_names(unwrap(state), model.neck_in_classifier)
    weights = model.convert(rename(names, lambda key: PARTS.sub('', key)))
    is_built_by_timm, head = hasattr(model, 'pretrained_cfg'), weights.get('head.weight', ())
    if is_built_by_timm and len(head) == model.num_classes > 0:
        model.pretrained_cfg['num_classes'] = len(head)  # timm drops heads of another number
    return weights

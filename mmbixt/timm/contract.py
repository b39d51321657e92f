"""What timm expects of a model, on top of a backbone."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import torch
from timm.layers import Format, nchw_to
from torch import Tensor, nn

from mmbixt.backbones.arch import check_choice
from mmbixt.layers.initialise import init_linear


class Classifier(nn.Module):
    """The authors' classifier, with timm's methods; a base class beside a backbone's.

    A subclass runs the layers (:meth:`run`), and says what is between them and the linear head
    (:meth:`finish`, :meth:`pool`). The weights have the backbone's names, which are the authors'.

    Args:
        num_classes: of the head; 0 for none.
        in_chans: channels of the images.
        global_pool: how the head makes one vector for each image, of :attr:`pools`; '' not at all.
        drop_rate: dropout before the head.
        drop_path_rate: stochastic depth.
        img_size: accepted and not used: the networks take images of any size.
        device, dtype: of the weights.
        options: further arguments of the backbone.
    """

    options: ClassVar[dict[str, Any]] = {}  # of the backbone in a classifier
    pools: ClassVar[tuple[str, ...]] = ('avg', '')
    final_norm = 'norm'  # the name of the last norm
    no_decay: ClassVar[tuple[str, ...]] = ()  # ends of the names of weights without weight decay

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
        rates = dict(drop_path_rate=drop_path_rate)
        super().__init__(in_channels=in_chans, **rates, **{**self.options, **options})
        self.in_chans = in_chans
        self.num_features = self.head_hidden_size = self.out_channels[-1]
        self.add_final_layers()
        self.head_drop = nn.Dropout(drop_rate)
        self.reset_classifier(num_classes, self.pools[0] if global_pool is None else global_pool)
        self.feature_info = self.describe_features()
        self.to(device=device, dtype=dtype).train()  # ``norm_eval`` is for the last norm as well

    # What a family defines

    def add_final_layers(self) -> None:
        """The layers between the backbone and the head."""

    def describe_features(self) -> list[dict[str, Any]]:
        """For each layer that gives a feature map: channels, stride, name."""
        raise NotImplementedError

    def run(self, x: Tensor, take: Collection[int], count: int | None) -> tuple[Tensor, list]:
        """The output of the first ``count`` layers (default: all), and the feature maps (B,C,H,W)
        after those in ``take``."""
        raise NotImplementedError

    def finish(self, x: Tensor) -> Tensor:
        """The output of all layers to what the head reads."""
        raise NotImplementedError

    def pool(self, x: Tensor) -> Tensor:
        """What the head reads to one vector (B,C) for each image."""
        raise NotImplementedError

    def normalise(self, feature_map: Tensor, layer: int) -> Tensor:
        """A feature map (B,C,H,W) through the last norm, where this is made for it."""
        return feature_map

    def cut(self, count: int, prune_head: bool) -> None:
        """Remove the layers after the first ``count``, and what only a head needs."""
        raise NotImplementedError

    # What timm calls

    def forward_features(self, x: Tensor) -> Tensor:
        return self.finish(self.run(x, (), None)[0])

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
        ``intermediates_only``.

        Args:
            x: images (B,3,H,W).
            indices: layers; an int: the last so many; None: all.
            norm: apply the last norm to those feature maps that it is made for.
            stop_early: stop after the last of the layers; its output is returned then.
            output_fmt: 'NCHW', 'NHWC', 'NCL' or 'NLC'.
            intermediates_only: return the feature maps alone.
        """
        output_fmt, layers = Format(output_fmt), len(self.feature_info)
        take = take_indices(indices, layers)
        count = max(take) + 1 if stop_early or intermediates_only else None
        if count == layers and not intermediates_only:  # a layer without a map may follow
            count = None
        x, maps = self.run(x, take, count)
        if norm:
            maps = [self.normalise(y, i) for y, i in zip(maps, take, strict=True)]
        maps = [nchw_to(y, output_fmt) for y in maps]
        if intermediates_only:
            return maps
        return (self.finish(x) if count is None else x), maps

    def prune_intermediate_layers(
        self,
        indices: int | Sequence[int] = 1,
        prune_norm: bool = False,
        prune_head: bool = True,
    ) -> list[int]:
        """Remove what some feature maps do not need; the indices from 0 are returned."""
        take = take_indices(indices, len(self.feature_info))
        count = max(take) + 1
        if prune_norm or count < len(self.feature_info):
            setattr(self, self.final_norm, nn.Identity())
        self.out_indices = ()  # the last layers' parts belong to no stage of the backbone
        self.cut(count, prune_head)
        self.feature_info = self.feature_info[:count]
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


def take_indices(indices: int | Sequence[int] | None, count: int) -> list[int]:
    """Layers from 0: all for None, the last n for an int."""
    if indices is None or isinstance(indices, int):
        indices = range(-(count if indices is None else indices), 0)
    if not indices or not all(-count <= i < count for i in indices):
        raise ValueError(f'indices={tuple(indices)}: there are {count} feature maps.')
    return sorted(i % count for i in indices)

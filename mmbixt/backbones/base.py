"""The base class of the backbones.

A backbone lists its layers once, in :meth:`DenseBackbone.layer_list`. The forward pass, frozen
stages, layer-wise learning rates, timm's features and pruning, FSDP units and compiled regions are
loops over this list, beside those who need them.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmbixt.backbones.arch import check_choice
from mmbixt.backbones.final_layers import FinalLayers
from mmbixt.backbones.weights import LoadsFiles, State
from mmbixt.errors import UserError
from mmbixt.layers.maps import as_output, channels_last

BATCH_NORMS = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm

__all__ = ['DenseBackbone', 'LayerInfo', 'Parts', 'State']

Parts = list[nn.Module | nn.Parameter]


class LayerInfo(NamedTuple):
    """A layer of a network, and what belongs to it.

    Attributes:
        name: of the module, such as 'blocks.3', or 'stages.1.2' in stage 1.
        module: what runs; it is checkpointed, compiled and gathered (FSDP) as a whole.
        width: channels of its output.
        stride: pixels from one token or cell of its output to the next.
        map_index: number of the feature map after it; None if there is none, as inside of a stage.
        downsample: what runs before it at the beginning of a stage; else None.
        norm: of its feature map; None if there is none.
        parts: what else is trained with it, besides the norm.
    """

    name: str
    module: nn.Module
    width: int
    stride: int
    map_index: int | None = None
    downsample: nn.Module | None = None
    norm: nn.Module | None = None
    parts: tuple[nn.Module | None, ...] = ()

    @property
    def trained(self) -> Parts:
        """What has the same learning rate, and is frozen together."""
        return [x for x in (self.module, *self.parts, self.norm) if x is not None]


class DenseBackbone(LoadsFiles):
    """A backbone for dense prediction, which a subclass defines by the list of its layers.

    Besides :meth:`layer_list` a subclass defines :meth:`stem`, :meth:`embed`, :meth:`step` and
    :meth:`feature_map`, and :meth:`convert` if the authors' weights have other names. Its
    ``__init__`` sets ``out_indices``, and calls :meth:`finish_init` at the end.

    Args:
        frozen_stages: -1 freezes nothing, k the first k + 1 of :func:`freezable_stages`:
            no gradients, and eval mode.
        norm_eval: keep batch norms in eval mode while training (their weights are still trained).
        with_cp: gradient checkpointing: layers are computed again in the backward pass, which saves
            memory and costs time.
        init_cfg: ``dict(type='Pretrained', checkpoint='bixt.pth')`` names a file that
            :meth:`init_weights` loads; the authors' checkpoints load as they are. ``prefix`` loads
            a part of a file, such as 'backbone.'. With ``adapt_stem=True`` a file for images of 3
            channels loads for another number, see :func:`mmbixt.backbones.weights.fit_channels`.
        in_channels: channels of the images.

    Attributes:
        out_indices: numbers of the returned feature maps.
        out_channels: width of each returned feature map.
        out_strides: stride of each; a feature map has ``ceil(H/stride) x ceil(W/stride)`` cells
            (rounded down in BiFormer with patchwise embedding, as in 'stl').
    """

    out_indices: tuple[int, ...]
    out_channels: tuple[int, ...]
    out_strides: tuple[int, ...]
    final_layers: type[FinalLayers] = FinalLayers  # before the head of the authors' classifier
    in_classifier: ClassVar[dict[str, Any]] = dict(out_indices=(-1,))  # options of a backbone there
    crop_pct: ClassVar[float] = 0.875  # of images for the authors' classifier, for timm
    # whether a file for timm must have all weights, also those that :attr:`may_be_missing` names
    pretrained_strict: ClassVar[bool] = True
    has_free_sizes: ClassVar[bool] = True  # whether a program by exporters is for any size
    freezes_stem_alone: ClassVar[bool] = True  # else with the layers up to the first feature map
    no_decay: ClassVar[tuple[str, ...]] = ()  # ends of the names of weights without weight decay

    def __init__(
        self,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | None = None,
        in_channels: int = 3,
    ) -> None:
        super().__init__(init_cfg, in_channels)
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        self.with_cp = with_cp

    # What a family defines

    def stem(self) -> Parts:
        """What runs before the first layer, and other parameters of the whole network."""
        raise NotImplementedError

    def embed(self, image: Tensor) -> Any:
        """Images (B,3,H,W) to the state with which the first layer runs, of any type."""
        raise NotImplementedError

    def layer_list(self) -> list[LayerInfo]:
        """The layers in the order of the forward pass. It is made of the modules at each call."""
        raise NotImplementedError

    def step(self, layer: LayerInfo, state: Any) -> Any:
        """The state after a layer, whose module runs by :meth:`run_layer`."""
        raise NotImplementedError

    def feature_map(self, state: Any, norm: nn.Module | None = None) -> Tensor:
        """The feature map (B,C,H,W) of a state, after a norm if there is one."""
        raise NotImplementedError

    def outputs(self, feature_maps: tuple[Tensor, ...], state: Any) -> tuple:
        """What the forward pass returns; ``state`` is that after the last layer."""
        return feature_maps

    def final_options(self) -> dict[str, Any]:
        """Arguments of the authors' final layers, beside the channels."""
        return {}

    # What follows

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Images (B,3,H,W) to feature maps (B,C,ceil(H/stride),ceil(W/stride)), per out index."""
        feature_maps, state = [], self.embed(channels_last(x))
        for layer in self.layer_list():
            state = self.step(layer, state)
            if layer.map_index in self.out_indices:
                feature_maps.append(as_output(self.feature_map(state, layer.norm)))
        return self.outputs(tuple(feature_maps), state)

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """For mmpretrain: the layer of a parameter, and the number of layers; the head is the last.

        ``prefix``, such as 'backbone.', is what the names of the backbone's parameters begin with.
        """
        layers = layer_groups(self)
        if not param_name.startswith(prefix):
            return len(layers), len(layers) + 1
        weight = self.get_parameter(param_name.removeprefix(prefix))
        return numbers_of(layers)[id(weight)], len(layers) + 1

    def finish_init(self) -> None:
        """What the constructor of each family does last: sizes of the outputs, frozen stages."""
        outputs = [layer for layer in self.layer_list() if layer.map_index in self.out_indices]
        self.out_channels = tuple(layer.width for layer in outputs)
        self.out_strides = tuple(layer.stride for layer in outputs)
        self.built_with = frozenset(self.state_dict())
        check_choice('frozen_stages', self.frozen_stages, range(-1, len(freezable_stages(self))))
        for part in self._frozen_parts():
            part.requires_grad_(False)
        self.train(self.training)  # plain training loops need not call it

    def train(self, mode: bool = True) -> 'DenseBackbone':
        super().train(mode)
        for part in self._frozen_parts():
            if isinstance(part, nn.Module):
                part.eval()
        for module in self.modules():
            if self.norm_eval and isinstance(module, BATCH_NORMS):
                module.eval()
            if type(module).__module__ == 'mmcv.ops.sync_bn':
                raise UserError(
                    "mmcv's SyncBatchNorm reads channels-last memory as if it were contiguous: set "
                    "sync_bn='torch' in the config."
                )
        return self

    def run_layer(self, layer: nn.Module, *inputs: Any) -> Any:
        """A layer's outputs, checkpointed if ``with_cp`` is set."""
        if not (self.with_cp and torch.is_grad_enabled()):
            return layer(*inputs)
        contexts = {}
        if not torch.compiler.is_compiling():  # compilers accept no contexts, and need none
            contexts['context_fn'] = lambda: (nullcontext(), _Recomputation(layer))
        return checkpoint(layer, *inputs, use_reentrant=False, **contexts)

    def _frozen_parts(self) -> Parts:
        return [x for stage in freezable_stages(self)[: self.frozen_stages + 1] for x in stage]


def layer_groups(backbone: DenseBackbone) -> list[Parts]:
    """For layer-wise learning rates: the stem, then what is trained with each layer."""
    return [backbone.stem(), *(layer.trained for layer in backbone.layer_list())]


def freezable_stages(backbone: DenseBackbone) -> list[Parts]:
    """What can be frozen: the stem, then the layers up to each feature map."""
    stages, is_new = [backbone.stem()], backbone.freezes_stem_alone
    for layer in backbone.layer_list():
        if is_new:
            stages.append([])
        stages[-1] += layer.trained
        is_new = layer.map_index is not None
    return stages


def numbers_of(groups: Sequence[Parts]) -> dict[int, int]:
    """The group of each parameter, by the parameter's id; the first one if groups share it."""
    numbers: dict[int, int] = {}
    for number, parts in enumerate(groups):
        for part in parts:
            for weight in part.parameters() if isinstance(part, nn.Module) else [part]:
                numbers.setdefault(id(weight), number)
    return numbers


class _Recomputation:
    """While a checkpointed layer is computed again, batch norms do not update their statistics."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def __enter__(self) -> None:
        norms = [m for m in self.layer.modules() if isinstance(m, BATCH_NORMS) and m.training]
        self.before = [(norm, norm.momentum, norm.num_batches_tracked.clone()) for norm in norms]
        for norm in norms:
            norm.momentum = 0.0

    def __exit__(self, *error: Any) -> None:
        for norm, momentum, count in self.before:
            norm.momentum = momentum
            norm.num_batches_tracked.copy_(count)

"""The base class of the backbones: freezing, norms in eval mode, gradient checkpointing."""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from mmbixt.backbones.arch import check_choice, check_names, check_positive
from mmbixt.backbones.loading import LoadsFiles, State
from mmbixt.layers import DropPath
from mmbixt.layers.context import is_exporting
from mmbixt.layers.maps import channels_last

__all__ = ['DenseBackbone', 'Parts', 'State']

Parts = list[nn.Module | nn.Parameter]


class DenseBackbone(LoadsFiles):
    """Frozen stages, norms in eval mode, gradient checkpointing, and the loading of files.

    A subclass sets ``out_channels`` and ``out_strides``, and defines what can be frozen
    (:meth:`freezable_stages`); if the authors' weights have other names, it renames them
    (:meth:`convert`).

    Args:
        frozen_stages: -1 freezes nothing, k the first k + 1 of :meth:`freezable_stages`:
            no gradients, and eval mode.
        norm_eval: keep batch norms in eval mode while training (their weights are still trained).
        with_cp: gradient checkpointing: layers that :meth:`run_layer` runs are computed again in
            the backward pass, which saves memory and costs time.
        init_cfg: mmengine's initialisation, for example
            ``dict(type='Pretrained', checkpoint='bixt.pth')``; the authors' checkpoints load as
            they are. With ``adapt_stem=True`` a file for images of 3 channels loads for another
            number, by timm's rule: the weights of the first convolution are summed for one
            channel, or repeated and scaled for more.
        in_channels: channels of the images.

    Attributes:
        out_channels: width of each returned feature map.
        out_strides: stride of each; a feature map has ``ceil(H/stride) x ceil(W/stride)`` cells
            (rounded down in BiFormer with patchwise embedding, as in 'stl').
    """

    out_channels: tuple[int, ...]
    out_strides: tuple[int, ...]
    min_side = 1  # of images, in pixels

    def __new__(cls, *_: Any, **options: Any) -> 'DenseBackbone':
        check_names(cls.__name__, cls.__init__, options)
        return super().__new__(cls)

    def __init__(
        self,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | None = None,
        in_channels: int = 3,
    ) -> None:
        check_positive('in_channels', in_channels)
        super().__init__(init_cfg, in_channels)
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        self.with_cp = with_cp

    @abstractmethod
    def freezable_stages(self) -> list[Parts]:
        """What can be frozen, in the order of the forward pass."""

    def layers(self) -> list[Parts]:
        """For layer-wise learning rates: one list for each layer, in the order of the forward pass.

        Together the lists contain all parts.
        """
        return self.freezable_stages()

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """The layer of a parameter, and the number of layers, of which the head is the last.

        For mmpretrain, whose classifiers ask their backbone for it.

        Args:
            param_name: its name in the whole model.
            prefix: what the names of the backbone's parameters begin with, such as 'backbone.'.
        """
        layers = self.layers()
        if not param_name.startswith(prefix):
            return len(layers), len(layers) + 1
        weight = self.get_parameter(param_name.removeprefix(prefix))
        for depth, layer in enumerate(layers):
            for part in layer:
                weights = part.parameters() if isinstance(part, nn.Module) else [part]
                if any(x is weight for x in weights):
                    return depth, len(layers) + 1
        raise ValueError(f'{param_name} is not in a layer of {type(self).__name__}.')

    def set_drop_path(self, kind: str) -> None:
        """How stochastic depth drops updates, 'mask' or 'skip'; called in ``__init__``."""
        check_choice('drop_path_rate is the rate; drop_path', kind, ('mask', 'skip'))
        for module in self.modules():
            if isinstance(module, DropPath):
                module.skips = kind == 'skip'

    def freeze(self) -> None:
        """Switch gradients off in the frozen stages; called at the end of ``__init__``.

        Plain training loops need not call :meth:`train`, so eval mode begins here as well.
        """
        if self.frozen_stages not in range(-1, len(self.freezable_stages())):
            raise ValueError(
                f'frozen_stages={self.frozen_stages!r}: {type(self).__name__} has stages '
                f'0 to {len(self.freezable_stages()) - 1} to freeze; -1 freezes none.'
            )
        for part in self._frozen_parts():
            part.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> 'DenseBackbone':
        super().train(mode)
        for part in self._frozen_parts():
            if isinstance(part, nn.Module):
                part.eval()
        if self.norm_eval:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def prepare(self, image: Tensor) -> Tensor:
        """Images (B,in_channels,H,W) in the memory format of tokens; an error for other tensors."""
        check_image(image, self.in_channels, self.min_side, type(self).__name__)
        return channels_last(image)

    def run_layer(self, layer: nn.Module, *inputs: Any) -> Any:
        """A layer's outputs, checkpointed if ``with_cp`` is set."""
        if not (self.with_cp and torch.is_grad_enabled()):
            return layer(*inputs)
        contexts = {}
        if not torch.compiler.is_compiling():  # compilers accept no contexts, and need none
            contexts['context_fn'] = lambda: (nullcontext(), _Recomputation(layer))
        return checkpoint(layer, *inputs, use_reentrant=False, **contexts)

    @torch.no_grad()
    def record(
        self,
        x: Tensor,
        modules: Mapping[Hashable, nn.Module],
        read: Callable[[Hashable, nn.Module, tuple], Any],
    ) -> dict[Hashable, Any]:
        """For pictures: values from within a forward pass on images (B,3,H,W), in eval mode.

        Args:
            x: the images.
            modules: parts of the backbone, under keys of any kind.
            read: called before each of the modules runs, with its key, itself and its inputs.

        Returns:
            What ``read`` returned, under the same keys.
        """
        values = {}

        def keep(name: Hashable) -> Callable:
            return lambda module, inputs: values.update({name: read(name, module, inputs)})

        handles = [m.register_forward_pre_hook(keep(name)) for name, m in modules.items()]
        modes = [(module, module.training) for module in self.modules()]
        try:
            self.eval()(x)  # in training, batch norms would update their statistics
        finally:
            for module, is_training in modes:  # some may be in eval mode in training
                module.training = is_training
            for handle in handles:
                handle.remove()
        return values

    def _frozen_parts(self) -> Parts:
        stages = self.freezable_stages()[: self.frozen_stages + 1]
        return [part for stage in stages for part in stage]


@fx.wrap  # torch.fx cannot trace a choice by sizes
def check_image(image: Tensor, in_channels: int, min_side: int, network: str) -> None:
    is_image = isinstance(image, Tensor) and image.dim() == 4 and image.is_floating_point()
    if not is_image or (not is_exporting() and image.shape[1] != in_channels):
        shape, dtype = (getattr(image, name, None) for name in ('shape', 'dtype'))
        given = f'of shape {tuple(shape)} and {dtype}' if shape else type(image).__name__
        raise ValueError(
            f'{network} needs images (B,{in_channels},H,W) of floating point numbers, but got '
            f'{given}.'
        )
    height, width = image.shape[-2:]
    if min_side > 1 and min(height, width) < min_side:
        raise ValueError(
            f'An image of {height} x {width} pixels is too small: {network} needs {min_side} x '
            f'{min_side}.'
        )


class _Recomputation:
    """The context in which a checkpointed layer is computed again in the backward pass.

    Batch norms do not update their statistics again.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def __enter__(self) -> None:
        norms = [m for m in self.layer.modules() if isinstance(m, _BatchNorm) and m.training]
        self.before = [(norm, norm.momentum, norm.num_batches_tracked.clone()) for norm in norms]
        for norm in norms:
            norm.momentum = 0.0

    def __exit__(self, *error: Any) -> None:
        for norm, momentum, count in self.before:
            norm.momentum = momentum
            norm.num_batches_tracked.copy_(count)

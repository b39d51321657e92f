"""The base class of the backbones: freezing, norms in eval mode, loading of checkpoints."""

import copy
import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from mmbixt.backbones.arch import check_choice, check_positive
from mmbixt.backbones.recognise import identify
from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.checkpoints.state_dict import compare, rename, replace, shorten, unwrap, without
from mmbixt.layers import DropPath
from mmbixt.layers.maps import channels_last
from mmbixt.layers.tracing import is_exporting
from mmbixt.optional import BaseModule, log

State = Mapping[str, Tensor]  # weights by name
Parts = list[nn.Module | nn.Parameter]


class DenseBackbone(BaseModule):
    """Frozen stages, norms in eval mode, and checkpoints that load completely or raise an error.

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
            (rounded down in BiFormer's 'stl' and 'stl-nchw').
    """

    out_channels: tuple[int, ...]
    out_strides: tuple[int, ...]
    may_be_missing = r'(?!)'  # beginnings of new weights, which files need not have
    # a pattern and a replacement for the authors' weights of what mmpretrain calls a neck
    neck_in_classifier: tuple[str, str] = (r'(?!)', '')

    def __init__(
        self,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | None = None,
        in_channels: int = 3,
    ) -> None:
        check_positive('in_channels', in_channels)
        if isinstance(init_cfg, str):
            raise TypeError(
                f"init_cfg = {init_cfg!r}: use dict(type='Pretrained', checkpoint={init_cfg!r})."
            )
        init_cfg = copy.deepcopy(init_cfg)
        self.adapt_stem = isinstance(init_cfg, dict) and init_cfg.pop('adapt_stem', False)
        super().__init__(init_cfg)
        self.in_channels = in_channels
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        self.with_cp = with_cp
        self.register_load_state_dict_pre_hook(DenseBackbone._fit_weights)

    @abstractmethod
    def freezable_stages(self) -> list[Parts]:
        """What can be frozen, in the order of the forward pass."""

    def layers(self) -> list[Parts]:
        """For layer-wise learning rates: one list for each layer, in the order of the forward pass.

        Together the lists contain all parts.
        """
        return self.freezable_stages()

    def convert(self, state: State) -> dict[str, Tensor]:
        """The weights of a file by this network's names, without those that it does not use.

        By default the file's names are kept. Unknown weights must be kept, too: they are an error.
        """
        return dict(state)

    def init_weights(self) -> None:
        """As in mmengine, with the name of the file in errors."""
        given = [self.init_cfg] if isinstance(self.init_cfg, dict) else self.init_cfg or []
        files = [cfg['checkpoint'] for cfg in given if cfg.get('checkpoint')]
        try:
            super().init_weights()
        except CheckpointMismatchError as error:
            raise CheckpointMismatchError(f'{", ".join(files)}: {error}') from None
        if not files:
            log(f'{type(self).__name__}: random weights, because init_cfg names no checkpoint')

    def _dump_init_info(self) -> None:
        """Without a runner, mmengine would print three lines for each weight."""

    def set_drop_path(self, kind: str) -> None:
        """How stochastic depth drops updates, 'mask' or 'skip'; called in ``__init__``."""
        check_choice('drop_path', kind, ('mask', 'skip'))
        for module in self.modules():
            if isinstance(module, DropPath):
                module.skips = kind == 'skip'

    def freeze(self) -> None:
        """Switch gradients off in the frozen stages; called at the end of ``__init__``."""
        if self.frozen_stages not in range(-1, len(self.freezable_stages())):
            raise ValueError(
                f'frozen_stages={self.frozen_stages!r}: {type(self).__name__} has stages '
                f'0 to {len(self.freezable_stages()) - 1} to freeze; -1 freezes none.'
            )
        for part in self._frozen_parts():
            part.requires_grad_(False)

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
        is_image = isinstance(image, Tensor) and image.dim() == 4 and image.is_floating_point()
        if not is_image or (not is_exporting() and image.shape[1] != self.in_channels):
            shape, dtype = (getattr(image, name, None) for name in ('shape', 'dtype'))
            given = f'of shape {tuple(shape)} and {dtype}' if shape else type(image).__name__
            raise ValueError(
                f'{type(self).__name__} needs images (B,{self.in_channels},H,W) of floating point '
                f'numbers, and here it gets {given}.'
            )
        return channels_last(image)

    def run_layer(self, layer: nn.Module, *inputs: Any) -> Any:
        """A layer's outputs, checkpointed if ``with_cp`` is set."""
        if not (self.with_cp and torch.is_grad_enabled()):
            return layer(*inputs)
        contexts = {}
        if not torch.compiler.is_compiling():  # compilers accept no contexts, and need none
            contexts = dict(context_fn=lambda: (nullcontext(), _Recomputation(layer)))
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
        found = {}

        def keep(name: Hashable) -> Callable:
            return lambda module, inputs: found.update({name: read(name, module, inputs)})

        handles = [m.register_forward_pre_hook(keep(name)) for name, m in modules.items()]
        was_training = self.training
        try:
            self.eval()(x)  # in training, batch norms would update their statistics
        finally:
            self.train(was_training)
            for handle in handles:
                handle.remove()
        return found

    def _frozen_parts(self) -> Parts:
        stages = self.freezable_stages()[: self.frozen_stages + 1]
        return [part for stage in stages for part in stage]

    def _fit_weights(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """Convert the weights of a file, or raise an error, before they are loaded.

        A pre-hook of ``load_state_dict``, so that it runs for ``init_cfg``, ``load_from``,
        ``resume`` and ``load_state_dict`` alike. mmengine loads with ``strict=False``: without this
        error, a model without any matching weight trains from random weights after a line in the
        log.
        """
        source = unwrap(without(prefix, state_dict))
        if source and all('.lora_' in key for key in source):  # adapters alone
            return
        if prefix and not source:
            raise CheckpointMismatchError(
                f'No weight of the file begins with {prefix!r}. A file of the backbone alone, such '
                'as a classifier, is not for load_from; give it to the backbone: '
                "backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=...))."
            )
        weights, expected = self.convert(source), self.state_dict()
        advice = self._fit_stem(weights)
        problems, new = compare(weights, expected, self.may_be_missing)
        name = type(self).__name__
        if problems:
            classes = {cls.__name__: cls for cls in DenseBackbone.__subclasses__()}
            first = f'The weights do not fit mmbixt.{name}: the file {identify(source, classes)}.'
            if any(key.startswith('backbone.') for key in source):
                advice = "To load the backbone of a whole model: init_cfg=dict(prefix='backbone.')."
            lines = [first, *problems, advice, 'Nothing was loaded.']
            raise CheckpointMismatchError('\n  '.join(filter(None, lines)))
        text = f'{name}: {len(weights)} of {len(expected)} weights loaded'
        if (unused := len(source) - len(weights)) > 0:
            text += f'; {unused} weights of the file are not used'
        log(f'{text}; new: {shorten(new)}' if new else text)
        replace(state_dict, prefix, weights)

    def _fit_stem(self, weights: dict[str, Tensor]) -> str | None:
        """Adapt the first convolution of a file for three channels, in place, or return advice."""
        first = next(name for name, m in self.named_modules() if isinstance(m, nn.Conv2d))
        weight = weights.get(f'{first}.weight')
        if weight is None or weight.ndim != 4 or not weight.shape[1] == 3 != self.in_channels:
            return None
        if not self.adapt_stem:
            return (
                f'The file is for images of 3 channels, the backbone for {self.in_channels}. To '
                'sum or repeat its first weights: init_cfg=dict(adapt_stem=True).'
            )
        from timm.models import adapt_input_conv  # takes seconds

        weights[f'{first}.weight'] = adapt_input_conv(self.in_channels, weight)
        return None

    def _checkpoint_filter(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """Called by mmpretrain's ``ImageClassifier`` before its weights are loaded.

        The names in a classifier of the authors become those of its parts.
        """
        source = unwrap(without(prefix, state_dict))
        if any(key.startswith('backbone.') for key in source):
            return
        neck = re.compile(self.neck_in_classifier[0])
        head = re.compile(r'^head\.(fc\.)?(?=(weight|bias)$)')  # 'head.fc' in timm's Swin

        def new_name(key: str) -> str:
            if head.match(key):
                return head.sub('head.fc.', key)
            is_neck = neck.match(key)
            return neck.sub(self.neck_in_classifier[1], key) if is_neck else f'backbone.{key}'

        replace(state_dict, prefix, rename(source, new_name))


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

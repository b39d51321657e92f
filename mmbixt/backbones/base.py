"""The base class of the backbones: freezing, norms in eval mode, loading of checkpoints."""

import copy
import logging
import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from mmengine.logging import print_log
from mmengine.model import BaseModule, PretrainedInit
from timm.models import adapt_input_conv
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from mmbixt.backbones.arch import check_choice, check_positive
from mmbixt.backbones.refusal import refuse_file, refuse_prefix
from mmbixt.checkpoints.adapters import check_adapted
from mmbixt.checkpoints.classifier import split_classifier
from mmbixt.checkpoints.origin import file_of, origin_of
from mmbixt.checkpoints.prefixes import replace, without
from mmbixt.checkpoints.state_dict import (
    NOTHING,
    CheckpointMismatchError,
    Conversion,
    Differences,
    NoWholeModelError,
    compare,
    refuse,
    refuse_unused_neck,
    translate,
    unwrap,
)
from mmbixt.layers import DropPath
from mmbixt.layers.maps import channels_last
from mmbixt.layers.tracing import is_exporting

State = Mapping[str, Tensor]  # weights by name
Parts = list[nn.Module | nn.Parameter]

# stored in files, but computed from sizes
_COMPUTED = re.compile(r'(relative_position_index|attn_mask|fourier_pos_encode\.pos\S*|_tracked)$')
FILE_OF_A_BACKBONE = (
    'No weight in the file begins with {!r}. A file of the backbone alone, such as a '
    'classification checkpoint, is not for load_from; give it to the backbone: '
    "backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=...))."
)


class DenseBackbone(BaseModule):
    """Frozen stages, norms in eval mode, and checkpoints that load completely or raise an error.

    A subclass sets ``out_channels`` and ``out_strides``, and defines what can be frozen
    (:meth:`freezable_stages`); if the authors' weights have other names, it renames them
    (:meth:`convert_checkpoint`).

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
    _has_weights = False  # of a file, or of another model
    fits_itself = True  # it compares a file with its weights, see LoadFromHook
    optional_weights: str | None = None
    in_classifier: tuple[str, str] = (r'(?!)', '')  # see split_classifier; matches no weight

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
        self._adapts_stem = isinstance(init_cfg, dict) and init_cfg.pop('adapt_stem', False)
        super().__init__(init_cfg)
        self.in_channels = in_channels
        self.frozen_stages = frozen_stages
        self.norm_eval = norm_eval
        self.with_cp = with_cp
        self._file: str | None = None  # name of the file that is being loaded, if known
        self._prefix = ''  # of the weights in this file
        self._is_classifiers = False  # whether the file is a whole classifier of the authors
        self._unexpected: list[str] = []  # weights of the file that the whole model does not have
        self.not_in_file: list[str] = []  # weights that the latest file does not have
        self.not_in_model: list[str] = []  # learned weights of the latest file, not used here
        self.register_load_state_dict_pre_hook(DenseBackbone._fit_checkpoint)

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
        raise ValueError(f'{param_name} is in no layer of {type(self).__name__}.')

    def convert_checkpoint(self, state: State, expected: State) -> Conversion:
        """The weights in an official state dict (without wrappers) under our names.

        By default they have our names.
        """
        return translate(state, lambda name: name)

    def differences(self, state: State) -> Differences:
        """How the weights of a file, with their names there, differ from the backbone's."""
        expected = self.state_dict()
        return compare(self.convert_checkpoint(state, expected), expected, self.optional_weights)

    def advise(self, state: State, expected: State) -> str | None:
        """What a user can do about a file that does not fit; None if nothing is known."""

    def explain_new(self, names: Collection[str]) -> str | None:
        """A note on new weights that were not in the file; None if their names are enough."""

    def check_origin(self, state: State, prefix: str) -> None:
        """Raise an error if the reader of the file has lost weights; called before conversion.

        The names are the file's, without the prefix of the backbone in a whole model.
        """

    def init_weights(self) -> None:
        """As in mmengine, and log whether training starts from a checkpoint."""
        files = self._files()
        with self._reading(files):
            super().init_weights()
        name = type(self).__name__
        if frozen := [p.numel() for p in self.parameters() if not p.requires_grad]:
            print_log(f'{name}: {sum(frozen):,} weights are not trained (frozen stages)', 'current')
        if files:
            return
        print_log(f'{name}: random weights, because init_cfg names no checkpoint', 'current')
        if self.norm_eval:
            text = f'{name}: norm_eval=True keeps batch statistics that are not trained'
            print_log(text, 'current', logging.WARNING)

    def try_weights(self) -> None:
        """Raise the error of :meth:`init_weights` about a local file; also on the meta device."""
        files = [cfg for cfg in self._files() if os.path.isfile(cfg['checkpoint'])]
        with self._reading(files):
            for cfg in files:
                PretrainedInit(cfg['checkpoint'], cfg.get('prefix'))(self)

    def _files(self) -> list[dict]:
        """The parts of ``init_cfg`` that name a file."""
        given = [self.init_cfg] if isinstance(self.init_cfg, dict) else self.init_cfg or []
        return [cfg for cfg in given if cfg.get('checkpoint')]

    @contextmanager
    def _reading(self, files: list[dict]) -> Iterator[None]:
        """Name the file, and the prefix of its weights, in errors."""
        if files:
            self._file, self._prefix = files[-1]['checkpoint'], files[-1].get('prefix') or ''
        try:
            yield
        except AssertionError as error:
            if 'is not in the pretrained model' in str(error):
                refuse_prefix(self._file, self._prefix, self.differences)
            raise
        finally:
            self._file, self._prefix = None, ''

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
        refuse_unused_neck(self._unexpected)
        super().train(mode)
        if not (mode or self._has_weights or any(p.is_meta for p in self.parameters())):
            for file in self._files():
                text = f'nothing was loaded yet: init_weights() reads {file["checkpoint"]}'
                print_log(f'{type(self).__name__}: {text}', 'current', logging.WARNING)
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

    def _checkpoint_filter(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Called by mmpretrain's ImageClassifier before its weights are loaded.

        Which weights of the file the classifier does not have is known only after all its parts
        are loaded. :meth:`train`, which is called before any use, therefore checks the list.
        """
        self._unexpected = others[-2]
        self._is_classifiers = split_classifier(state_dict, prefix, self.in_classifier)

    def _fit_checkpoint(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """Convert the weights of a file and check that they fit, before they are loaded.

        A pre-hook of ``load_state_dict``, so that it runs for ``init_cfg``, ``load_from``,
        ``resume`` and ``load_state_dict`` alike, also with ``strict=False``.
        """
        self._has_weights = True
        source = unwrap(without(prefix, state_dict))
        self.check_origin(source, prefix)
        if prefix and not source:
            raise NoWholeModelError(FILE_OF_A_BACKBONE.format(prefix))
        current = self.state_dict()
        adapters = {key: value for key, value in current.items() if '.lora_' in key}
        if adapters and all('.lora_' in key for key in source):  # a file of these alone
            file, notes = origin_of(source)
            differences = compare(Conversion(source), adapters)
            if differences:
                model = f'the adapters of mmbixt.{type(self).__name__}'
                refuse(differences, model, self._file or file, None, NOTHING)
            check_adapted(self, notes, prefix, file)
            text = f'{len(adapters)} weights of adapters loaded, the others are unchanged'
            print_log(f'{type(self).__name__}: {text}', 'current')
            if file and not notes:
                text = f'{file} does not say which other weights its adapters were trained with'
                text += ', so these are not checked. mmbixt.LoadFromHook writes that in training.'
                print_log(text, 'current', logging.WARNING)
            self.not_in_model = []  # of the other weights' file, which may be a classifier's
            return
        converted = self.convert_checkpoint(source, current)
        channels_advice = self._fit_stem(converted.weights)
        differences = compare(converted, current, self.optional_weights)
        name, file = type(self).__name__, self._file or file_of(source)
        if differences:
            refuse_file(
                f'mmbixt.{name}',
                source,
                file,
                self.differences,
                lambda part: channels_advice or self.advise(part, current),
                None if prefix else self._prefix,
            )
        fresh = differences.optional
        origin = f' from {file}' if file else ''
        count = f'{len(current) - len(fresh)} of {len(current)}'
        print_log(f'{name}: {count} weights loaded{origin}', 'current')
        if unused := _by_part(converted.dropped):
            print_log(f'{name} does not use these weights of the file: {unused}', 'current')
        self.not_in_model = [key for key in converted.dropped if not _COMPUTED.search(key)]
        is_cut, self._is_classifiers = self._is_classifiers and self.not_in_model, False
        if is_cut:
            raise CheckpointMismatchError(
                f'The file is a whole classifier, whose head needs weights that {name} does not '
                f'use: {unused}. Build the backbone with the options of the file. Nothing was '
                'loaded.'
            )
        trainable = dict(self.named_parameters())
        self.not_in_file = [key for key in fresh if key in trainable]  # without computed buffers
        if self.not_in_file:
            text = f'{name}: not in the file, so initialised anew: {_by_part(self.not_in_file)}'
            text += f'. {more}' if (more := self.explain_new(self.not_in_file)) else ''
            print_log(text, 'current', logging.WARNING)
        replace(state_dict, prefix, {**converted.weights, **{key: current[key] for key in fresh}})

    def _fit_stem(self, weights: dict[str, Tensor]) -> str | None:
        """Adapt the first convolution in place to ``in_channels`` if ``adapt_stem`` is set, or
        return advice."""
        convolutions = (k for k, m in self.named_modules() if isinstance(m, nn.Conv2d))
        name, count = f'{next(convolutions)}.weight', self.in_channels
        weight = weights.get(name)
        if weight is None or weight.ndim != 4 or weight.shape[1] == count:
            return None
        text = f'The file is for images of {weight.shape[1]} channels, the backbone for {count}.'
        if weight.shape[1] == 3 and self._adapts_stem and self._file:
            weights[name] = adapt_input_conv(count, weight)
            print_log(f'{text} Its first convolution was adapted (adapt_stem=True).', 'current')
            return None
        if weight.shape[1] == 3:
            text += (
                ' To start from it, with its first convolution summed or repeated over '
                "the channels: backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=..., "
                'adapt_stem=True)).'
            )
        return text


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


def _by_part(keys: Collection[str]) -> str:
    """'blocks.12 (20), head (2)' for the names of weights; up to ten names themselves."""
    if len(keys) <= 10:
        return ', '.join(sorted(keys))
    parts = (key.split('.') for key in sorted(keys))
    counts = Counter(
        '.'.join(p[:2]) if p[0] in ('blocks', 'stages', 'layers') else p[0] for p in parts
    )
    return ', '.join(f'{part} ({count})' for part, count in counts.items())

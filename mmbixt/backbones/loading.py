"""Loading of files: a network loads all of its weights, or raises an error and loads nothing."""

import logging
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from mmbixt.backbones.recognise import identify
from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.checkpoints.loader import load_weights
from mmbixt.checkpoints.state_dict import compare, rename, replace, shorten, unwrap, without

State = Mapping[str, Tensor]  # weights by name
log = logging.getLogger('mmbixt').info  # see mmbixt.checkpoints.openmmlab

# stored in files, but computed from sizes
_COMPUTED = re.compile(r'(relative_position_index|attn_mask|fourier_pos_encode\.pos\S*|_tracked)$')


def _learned(state: State) -> int:
    """The number of weights, without what is computed from sizes."""
    return sum(not _COMPUTED.search(key) for key in state)


def adapt_stem(weight: Tensor, in_channels: int) -> Tensor:
    """The weights (C,3,h,w) of a first convolution for another number of channels, as in timm.

    They are summed for one channel; for more they are repeated, and scaled to keep the sums.
    """
    if in_channels == 1:
        return weight.float().sum(1, keepdim=True).to(weight.dtype)
    repeated = weight.float().repeat(1, -(-in_channels // 3), 1, 1)[:, :in_channels]
    return (repeated * (3 / in_channels)).to(weight.dtype)


class LoadsFiles(nn.Module):
    """A network whose ``load_state_dict`` converts the weights of a file (:meth:`convert`).

    Unless the file has all weights that the network was built with, except
    :attr:`may_be_missing`, and no others, an error is raised before anything is loaded, also with
    ``strict=False``: mmengine loads so, and would only log that it trains from random weights. A
    state with only the weights of modules that were added later, such as adapters, is loaded, too.
    """

    families: ClassVar[dict[str, type]] = {}  # all subclasses by their names
    may_be_missing = r'(?!)'  # beginnings of the names of weights that files need not have
    # a pattern and a replacement for the names of the authors' layers that form a neck here
    neck_in_classifier: tuple[str, str] = (r'(?!)', '')

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.families.setdefault(cls.__name__, cls)

    def __init__(self, init_cfg: dict | None, in_channels: int) -> None:
        is_known = isinstance(init_cfg, Mapping) and init_cfg.get('type') == 'Pretrained'
        if init_cfg is not None and not is_known:
            raise ValueError(
                f"init_cfg={init_cfg!r} must be None or dict(type='Pretrained', checkpoint=...)."
            )
        super().__init__()
        self.init_cfg, self.is_init = init_cfg, False
        self.adapt_stem = is_known and init_cfg.get('adapt_stem', False)
        self.in_channels = in_channels
        self.built_with: frozenset[str] = frozenset()  # names of weights
        self.register_load_state_dict_pre_hook(LoadsFiles._fit_weights)

    def convert(self, state: State) -> dict[str, Tensor]:
        """The weights of a file by this network's names, without those that it does not use.

        Weights that are not known must be kept, so that they raise an error.
        """
        return dict(state)

    def init_weights(self) -> None:
        """Load the file of ``init_cfg``, once. mmengine calls this method."""
        if self.init_cfg is None:
            log(f'{type(self).__name__}: random weights, because init_cfg names no checkpoint')
        elif not self.is_init:
            checkpoint, prefix = self.init_cfg['checkpoint'], self.init_cfg.get('prefix', '')
            state = load_weights(checkpoint)
            try:
                self.load_state_dict(without(prefix, state), strict=False)
            except CheckpointMismatchError as error:
                raise CheckpointMismatchError(f'{checkpoint}: {error}') from None
        self.is_init = True

    def _fit_weights(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """Before a state is loaded: convert its weights, in place, or raise an error."""
        source = unwrap(without(prefix, state_dict))  # load_state_dict(load(FILE)) gives containers
        if prefix and not source:
            raise CheckpointMismatchError(
                f'No weight of the file begins with {prefix!r}. load_from needs a file of a whole '
                'model; give the file of a classifier or of a backbone to the backbone: '
                "backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=...))."
            )
        expected = self.state_dict()
        if self.built_with and source and source.keys() <= expected.keys() - self.built_with:
            return
        weights = self.convert(source)
        unused = _learned(source) - _learned(weights)
        if prefix and unused > 0:  # the layers after the backbone were trained with these weights
            raise CheckpointMismatchError(
                f'The file of a whole model has {unused} weights that this {type(self).__name__} '
                'does not have: build it with the options of the file (depth, stages). Nothing was '
                'loaded.'
            )
        advice = self._fit_stem(weights)
        problems, new = compare(weights, expected, self.may_be_missing)
        name = type(self).__name__
        if problems:
            file = identify(source, self.families)
            first = f'The weights do not fit mmbixt.{name}: the file {file}.'
            if any(key.startswith('backbone.') for key in source):
                advice = "Its backbone: init_cfg=dict(..., prefix='backbone.')."
            lines = [first, *problems, advice, 'Nothing was loaded.']
            raise CheckpointMismatchError('\n  '.join(filter(None, lines)))
        text = f'{name}: {len(weights)} of {len(expected)} weights loaded'
        if (unused := len(source) - len(weights)) > 0:
            text += f'; {unused} weights of the file are not used'
        log(f'{text}; new: {shorten(new)}' if new else text)
        replace(state_dict, prefix, weights)

    def _fit_stem(self, weights: dict[str, Tensor]) -> str | None:
        """Adapt the first convolution of a file for three channels, in place, or return advice."""
        layers = (name for name, part in self.named_modules() if isinstance(part, nn.Conv2d))
        first = next(layers, '')
        weight = weights.get(f'{first}.weight')
        if weight is None or weight.ndim != 4 or not weight.shape[1] == 3 != self.in_channels:
            return None
        if not self.adapt_stem:
            return (
                f'The file is for images of 3 channels, the backbone for {self.in_channels}. To '
                'sum or repeat its first weights: init_cfg=dict(adapt_stem=True).'
            )
        weights[f'{first}.weight'] = adapt_stem(weight, self.in_channels)
        return None

    def _checkpoint_filter(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """mmpretrain's ``ImageClassifier`` calls it before it loads a classifier of the authors."""
        source = without(prefix, state_dict)
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

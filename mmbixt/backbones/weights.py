"""The weights of a file for a network: it loads all that it has, or raises an error and loads none.

:mod:`mmbixt.checkpoints` draws the road that weights take.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from mmbixt.backbones.recognise import identify
from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.checkpoints.state_dict import (
    COUNT,
    State,
    compare,
    log,
    rename,
    replace,
    shorten,
    take_part,
    unwrap,
    whole_models,
)

# stored in files, but computed from sizes
_COMPUTED = re.compile(r'(relative_position_index|attn_mask|fourier_pos_encode\.pos\S*|_tracked)$')
_HEAD = re.compile(r'^head\.(fc\.)?(?=(weight|bias)$)')  # 'head.fc' in timm's Swin


class LoadsFiles(nn.Module):
    """A network whose ``load_state_dict`` converts the weights of a file (:meth:`convert`).

    Unless the file has all weights that the network was built with, except
    :attr:`may_be_missing`, and no others, an error is raised before anything is loaded, also with
    ``strict=False``: mmengine loads so, and would only log that it trains from random weights. A
    state with only the weights of modules that were added later, such as adapters, is loaded, too,
    unless the other weights are random.
    """

    families: ClassVar[dict[str, type['LoadsFiles']]] = {}  # all subclasses by their names
    weight_names = r'(?!)'  # a pattern: weights with such names are in files of this family alone
    uses_all: ClassVar[bool] = True  # False: whole models may have weights for it that it lacks
    may_be_missing = r'(?!)'  # a pattern: files need not have weights whose names begin so
    # a pattern and a replacement: the authors' layers with such names form a neck here
    neck_in_classifier: tuple[str, str] = (r'(?!)', '')

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.families.setdefault(cls.__name__, cls).__module__ == cls.__module__:
            cls.families[cls.__name__] = cls  # defined again, as in a notebook
        if 'rename_whole' in vars(cls):
            whole_models.append(cls.rename_whole)

    def __init__(self, init_cfg: dict | None, in_channels: int = 3) -> None:
        is_known = isinstance(init_cfg, Mapping) and init_cfg.get('type') == 'Pretrained'
        if init_cfg is not None and not is_known:
            raise ValueError(
                f"init_cfg={init_cfg!r} must be None or dict(type='Pretrained', checkpoint=...)."
            )
        super().__init__()
        self.init_cfg, self.is_init, self.is_random = init_cfg, False, False
        self.adapt_stem = is_known and init_cfg.get('adapt_stem', False)
        self.in_channels = in_channels
        self.built_with: frozenset[str] = frozenset()  # names of weights
        self.register_load_state_dict_pre_hook(LoadsFiles._fit_weights)

    def init_weights(self) -> None:
        """Load the file of ``init_cfg``, once. mmengine calls this method."""
        if self.init_cfg is None:
            self.is_random = True
            log(f'{type(self).__name__}: random weights, because init_cfg names no checkpoint')
        elif not self.is_init:
            from mmbixt.checkpoints.loader import load_weights  # with all that downloads need

            checkpoint, prefix = self.init_cfg['checkpoint'], self.init_cfg.get('prefix', '')
            weights = load_weights(checkpoint)
            try:
                self.load_state_dict(take_part(weights, prefix), strict=False)
            except CheckpointMismatchError as error:
                raise CheckpointMismatchError(f'{checkpoint}: {error}') from None
        self.is_init = True

    def _fit_weights(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """Before a state is loaded: convert its weights, in place, or raise an error."""
        source = unwrap(take_part(state_dict, prefix))  # load_state_dict(load(FILE)): containers
        if prefix and not source:
            raise CheckpointMismatchError(
                f'No weight begins with {prefix!r}. Give the file of a classifier or of a '
                "backbone to the backbone: init_cfg=dict(type='Pretrained', checkpoint=...), and "
                'weights of other parts alone to these: model.head.load_state_dict(...).'
            )
        replace(state_dict, prefix, adapt(source, self, is_part=bool(prefix)))
        self.is_random = False

    def convert(self, state: State) -> dict[str, Tensor]:
        """The weights of a file by this network's names, without those that it does not use.

        Weights that are not known must be kept, so that they raise an error.
        """
        return dict(state)

    def _checkpoint_filter(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        """mmpretrain's ``ImageClassifier`` calls it before it loads a file."""
        names = classifier_names(take_part(state_dict, prefix), self.neck_in_classifier)
        replace(state_dict, prefix, names)


def adapt(source: State, model: LoadsFiles, is_part: bool = False) -> State:
    """The weights of a file by the names of a model, or an error if they do not fit it.

    ``is_part``: the file is of a whole model of which this is a part.
    """
    name, expected = type(model).__name__, model.state_dict()
    if model.built_with and source and source.keys() <= expected.keys() - model.built_with:
        if model.is_random:
            raise CheckpointMismatchError(
                f'The file has only weights that were added to {name}, such as adapters: name the '
                "file of the others by init_cfg=dict(type='Pretrained', checkpoint=...)."
            )
        return source
    weights = model.convert(source)
    unused = _learned(source) - _learned(weights)
    # the layers after it were trained with these weights
    if is_part and model.uses_all and unused > 0:
        raise CheckpointMismatchError(
            f'The file of a whole model has {unused} weights that this {name} does not have: build '
            'it with the options of the file (depth, stages). Nothing was loaded.'
        )
    weights = fit_stem(weights, model)
    problems, new = compare(weights, expected, model.may_be_missing)
    if problems:
        first = (
            f'The weights do not fit mmbixt.{name}: the file {identify(source, model.families)}.'
        )
        if any(key.startswith('backbone.') for key in source):
            problems.append("Its backbone: init_cfg=dict(..., prefix='backbone.').")
        raise CheckpointMismatchError('\n  '.join([first, *problems, 'Nothing was loaded.']))
    text = f'{name}: {len(weights)} of {len(expected)} weights loaded'
    if (unused := len(source) - len(weights)) > 0:
        text += f'; {unused} weights of the file are not used'
    log(f'{text}; new: {shorten(new)}' if new else text)
    return weights


def fit_stem(weights: State, model: LoadsFiles) -> State:
    """The weights with a first convolution of as many channels as the model's."""
    name = f'{first_convolution(model)}.weight'
    weight = weights.get(name)
    if weight is None or weight.ndim != 4 or not weight.shape[1] == 3 != model.in_channels:
        return weights
    if not model.adapt_stem:
        raise CheckpointMismatchError(
            f'The file is for images of 3 channels, the backbone for {model.in_channels}. To '
            'sum or repeat its first weights: init_cfg=dict(adapt_stem=True). Nothing was loaded.'
        )
    return {**weights, name: fit_channels(weight, model.in_channels)}


def first_convolution(model: nn.Module) -> str:
    """Its name; empty if there is none."""
    parts = (name for name, part in model.named_modules() if isinstance(part, nn.Conv2d))
    return next(parts, '')


def fit_channels(weight: Tensor, in_channels: int) -> Tensor:
    """The weights (C,3,h,w) of a first convolution for another number of channels, as in timm.

    They are summed for one channel; for more they are repeated, and scaled to keep the sums.
    """
    if in_channels == 1:
        return weight.float().sum(1, keepdim=True).to(weight.dtype)
    repeated = weight.float().repeat(1, -(-in_channels // 3), 1, 1)[:, :in_channels]
    return (repeated * (3 / in_channels)).to(weight.dtype)


def classifier_names(state: State, neck_in_classifier: tuple[str, str]) -> State:
    """The weights of a classifier of the authors by the names of mmpretrain's classifiers."""
    if any(key.startswith('backbone.') for key in state):
        return state
    neck = re.compile(neck_in_classifier[0])

    def new_name(key: str) -> str:
        if _HEAD.match(key):
            return _HEAD.sub('head.fc.', key)
        return neck.sub(neck_in_classifier[1], key) if neck.match(key) else f'backbone.{key}'

    return rename(state, new_name)


def load_whole_state(
    model: nn.Module, checkpoint: Mapping[str, Any], file: str = 'The checkpoint'
) -> None:
    """Load all weights of a model that is used without further training, or raise an error.

    mmengine only logs missing weights, and would test a model with random ones. Weights that the
    model does not have are ignored, as in mmengine, except those of a backbone or a neck: the
    layers after it were trained with its output.
    """
    name, weights = type(model).__name__, checkpoint.get('state_dict', checkpoint)
    parts = sorted({key.partition('.')[0] for key in weights})
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except CheckpointMismatchError as error:
        what = '' if 'backbone' in parts else f'{file} {identify(weights, LoadsFiles.families)}. '
        raise CheckpointMismatchError(f'{what}{error}') from None
    except RuntimeError as error:  # weights of another shape
        raise CheckpointMismatchError(f'{file} does not fit {name}: {error}') from error
    if lacking := [key for key in missing if not key.endswith(COUNT)]:
        text = f'{file} has {shorten(parts)}; it lacks weights of {name}: {shorten(lacking)}'
        raise CheckpointMismatchError(text)
    if more := [key for key in unexpected if key.startswith(('backbone.', 'neck.'))]:
        raise CheckpointMismatchError(f'{file} has weights that {name} lacks: {shorten(more)}')


def _learned(state: State) -> int:
    """The number of weights, without what is computed from sizes."""
    return sum(not _COMPUTED.search(key) for key in state)

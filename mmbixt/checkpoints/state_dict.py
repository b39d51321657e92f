"""State dicts of all families: remove containers and wrappers, rename, check that weights fit."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from mmbixt.checkpoints.describe import describe

# necks of the authors' classifiers, by names that only they have
_NECKS = {
    'neck.cls_token': 'mmbixt.ClassAttentionNeck',
    'neck.fc_norm.': 'mmbixt.LatentMeanNeck',
    'neck.norm.': 'mmbixt.BatchNormMeanNeck',
}
CONTAINERS = ('state_dict', 'model', 'state_dict_ema', 'model_ema')
# prefixes of DistributedDataParallel and torch.compile
_WRAPPERS = re.compile(r'^((module|_orig_mod)\.)+')


class CheckpointMismatchError(RuntimeError):
    """The weights of the file do not fit the model."""


def unwrap(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of a checkpoint, without containers and without prefixes of wrappers."""
    for _ in range(4):  # a container may contain itself
        parts = (checkpoint.get(name) for name in CONTAINERS)
        checkpoint = next((part for part in parts if isinstance(part, Mapping)), checkpoint)
    return {
        _WRAPPERS.sub('', key): value
        for key, value in checkpoint.items()
        if isinstance(key, str) and isinstance(value, Tensor)
    }


def last_number(pattern: re.Pattern[str], keys: Iterable[str]) -> int:
    """The largest number that a pattern matches at the beginning of names; -1 if none."""
    return max((int(match[1]) for key in keys if (match := pattern.match(key))), default=-1)


@dataclass
class Conversion:
    """A renamed state dict."""

    weights: dict[str, Tensor] = field(default_factory=dict)  # by our names
    origins: dict[str, str] = field(default_factory=dict)  # our name -> name in the file
    dropped: list[str] = field(default_factory=list)  # names in the file


def translate(
    state: Mapping[str, Tensor],
    rename: Callable[[str], str | None],
    adapt: Callable[[str, Tensor], Tensor] = lambda name, value: value,
) -> Conversion:
    """Rename and convert the weights of an unwrapped state dict.

    Args:
        state: weights by their names in the file.
        rename: returns our name for a name in the file, or None for a weight to drop. It must
            return unknown names unchanged, so that they are reported as an error.
        adapt: returns our tensor for our name and the tensor of the file.
    """
    done = Conversion()
    for key, value in state.items():
        name = rename(key)
        if name is None:
            done.dropped.append(key)
        else:
            done.weights[name] = adapt(name, value)
            done.origins[name] = key
    return done


def check_fit(
    state: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    model: str,
    seems: str,
    optional: str | None = None,
    advice: str | None = None,
    origins: Mapping[str, str] | None = None,
) -> list[str]:
    """Raise an error unless a state dict has all weights of a model in their shapes, and no others.

    mmengine loads checkpoints with ``strict=False``: without this check, a model without any
    matching weight trains from random weights after one line in the log.

    Args:
        state: weights by our names.
        shapes: shapes of the weights of the model.
        model: name of the model, for the error.
        seems: description of the file, for the error.
        optional: regular expression for names of weights that may be missing, if the file has no
            weight with the same matched prefix.
        advice: a line of the error.
        origins: names in the file by our names, for the error.

    Returns:
        The optional weights that are missing.
    """
    absent = [key for key in shapes if key not in state]
    fresh = [key for key in absent if optional and _is_optional(key, state, optional)]
    missing = [key for key in absent if key not in fresh]
    wrong = [key for key in shapes if key in state and tuple(state[key].shape) != shapes[key]]
    unknown = [(origins or {}).get(key, key) for key in state if key not in shapes]
    if not missing and not wrong and not unknown:
        return fresh
    missing_of = f'{len(missing)} of {len(shapes)}'
    differences = (f'{k}: {tuple(state[k].shape)} in the file, {shapes[k]} here' for k in wrong)
    lines = [
        f'The checkpoint does not fit {model}; by its names it seems to be {seems}.',
        missing and f'Missing in the file: {missing_of} weights: {shorten(missing)}',
        wrong and f'Of another shape: {len(wrong)}: {shorten(differences)}',
        unknown and f'Not in the model: {len(unknown)} weights of the file: {shorten(unknown)}',
        advice,
        'Nothing was loaded.',
    ]
    raise CheckpointMismatchError('\n  '.join(filter(None, lines)))


def _is_optional(key: str, state: Mapping[str, Tensor], optional: str) -> bool:
    part = re.search(optional, key)
    return part is not None and not any(other.startswith(key[: part.end()]) for other in state)


def load_whole_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load all weights of a model that is used without further training, or raise an error.

    mmengine only logs missing weights, and would test a model with random ones. Weights that the
    model does not have are ignored, as in mmengine, except those of a neck: the layers after it
    were trained with its output.
    """
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except CheckpointMismatchError:
        raise
    except RuntimeError as error:  # weights of another shape
        raise CheckpointMismatchError(f'The checkpoint does not fit. {error}') from None
    missing = [key for key in missing if not key.endswith('num_batches_tracked')]
    if missing:
        text = f'The checkpoint lacks {len(missing)} weights of the model: {shorten(missing)}.'
        raise CheckpointMismatchError(f'{text} It seems to be {describe(state)}.')
    for module in model.modules():  # our backbones also load parts, for further training
        for attribute, text in (('not_in_file', 'lacks'), ('not_in_model', 'has more than')):
            if names := getattr(module, attribute, ()):
                name = type(module).__name__
                text = f'The checkpoint {text} the weights of this {name}: {shorten(names)}.'
                raise CheckpointMismatchError(text)
    refuse_unused_neck(unexpected)


def refuse_unused_neck(unexpected: Iterable[str]) -> None:
    """Raise an error if weights of a neck are not used: later layers were trained with it."""
    unused = [key for key in unexpected if key.startswith('neck.')]
    if unused:
        necks = (name for part, name in _NECKS.items() if any(k.startswith(part) for k in unused))
        advice = ''.join(f' Use neck=dict(type={name!r}, ...).' for name in list(necks)[:1])
        text = f'The model does not have the neck of the checkpoint: {shorten(unused)}.'
        raise CheckpointMismatchError(text + advice)


def shorten(names: Iterable[str], most: int | None = 5) -> str:
    """The first names of a list, in one line; all of them with ``most=None``."""
    names = list(names)
    return '; '.join(names[:most]) + ('; ...' if len(names[:most]) < len(names) else '')

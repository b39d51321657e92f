"""What is the same for every family: wrappings, prefixes, and the check that weights fit."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from mmbixt.checkpoints.describe import describe

# of the authors' classifiers, by what they alone have
_NECKS = {
    'neck.cls_token': 'mmbixt.ClassAttentionNeck',
    'neck.fc_norm.': 'mmbixt.LatentMeanNeck',
    'neck.norm.': 'mmbixt.BatchNormMeanNeck',
}
CONTAINERS = ('state_dict', 'model', 'state_dict_ema', 'model_ema')
# left by DistributedDataParallel and torch.compile
_WRAPPERS = re.compile(r'^((module|_orig_mod)\.)+')


class CheckpointMismatchError(RuntimeError):
    """The weights in the file are not those of the model."""


def unwrap(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of a checkpoint under their plain names: out of containers and wrappers."""
    for _ in range(4):  # one may contain itself
        parts = (checkpoint.get(name) for name in CONTAINERS)
        checkpoint = next((part for part in parts if isinstance(part, Mapping)), checkpoint)
    return {
        _WRAPPERS.sub('', key): value
        for key, value in checkpoint.items()
        if isinstance(key, str) and isinstance(value, Tensor)
    }


def last_number(pattern: re.Pattern[str], keys: Iterable[str]) -> int:
    """The largest number that a pattern finds at the beginning of names, -1 if none."""
    return max((int(match[1]) for key in keys if (match := pattern.match(key))), default=-1)


@dataclass
class Conversion:
    """Weights under our names, which names of the file they had, and what was left out."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)


def translate(
    state: Mapping[str, Tensor],
    rename: Callable[[str], str | None],
    adapt: Callable[[str, Tensor], Tensor] = lambda name, value: value,
) -> Conversion:
    """Go through a state dict under the file's names, without wrappers.

    ``rename`` takes the file's name to ours, or to None for what we knowingly leave out; what it
    does not know it returns as it is, so that nothing disappears unseen. ``adapt`` takes our name
    and the file's tensor to our tensor.
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
    """Raise unless the state dict holds every weight of the model in its shape, and no other.

    mmengine loads checkpoints with ``strict=False``: without this check a model whose weights are
    all missing trains from random numbers after one line in the log.

    Returns the missing weights that may be missing, and then stay initialised: whose names begin as
    the regular expression ``optional`` says, and no other weight of the file begins alike. The
    error says what the file ``seems`` to be, and names weights by their ``origins`` in the file.
    """
    absent = [key for key in shapes if key not in state]
    fresh = [key for key in absent if optional and _is_dispensable(key, state, optional)]
    missing = [key for key in absent if key not in fresh]
    wrong = [key for key in shapes if key in state and tuple(state[key].shape) != shapes[key]]
    unknown = [(origins or {}).get(key, key) for key in state if key not in shapes]
    if not missing and not wrong and not unknown:
        return fresh
    missing_of = f'{len(missing)} of {len(shapes)}'
    differences = (f'{k}: {tuple(state[k].shape)} in the file, {shapes[k]} here' for k in wrong)
    lines = [
        f'The checkpoint does not fit {model}; it seems to be {seems}.',
        missing and f'Missing in the file: {missing_of} weights: {shorten(missing)}',
        wrong and f'Of another shape: {len(wrong)}: {shorten(differences)}',
        unknown and f'Not in the model: {len(unknown)} weights of the file: {shorten(unknown)}',
        advice,
        'Nothing was loaded into it.',
    ]
    raise CheckpointMismatchError('\n  '.join(filter(None, lines)))


def _is_dispensable(key: str, state: Mapping[str, Tensor], optional: str) -> bool:
    part = re.search(optional, key)
    return part is not None and not any(other.startswith(key[: part.end()]) for other in state)


def load_whole_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load weights into a model that is to be used as it is: all that it has, or an error.

    mmengine notes in the log which it has not, and a model that is half random gets figures too.
    What the model has no use for is left alone, as mmengine does, unless it is of a neck: what
    follows was trained on another one's output.
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
    for module in model.modules():  # our backbones, which take a part, too, to be trained further
        for attribute, text in (('not_in_file', 'lacks'), ('not_in_model', 'has more than')):
            if names := getattr(module, attribute, ()):
                name = type(module).__name__
                text = f'The checkpoint {text} the weights of this {name}: {shorten(names)}.'
                raise CheckpointMismatchError(text)
    refuse_lost_neck(unexpected)


def refuse_lost_neck(unexpected: Iterable[str]) -> None:
    """Raise if weights of a neck have no place: what follows was trained on its output."""
    lost = [key for key in unexpected if key.startswith('neck.')]
    if lost:
        wanted = (name for part, name in _NECKS.items() if any(k.startswith(part) for k in lost))
        advice = ''.join(f' Take neck=dict(type={name!r}, ...).' for name in list(wanted)[:1])
        text = f'The model has no such neck as the checkpoint: {shorten(lost)} are not in it.'
        raise CheckpointMismatchError(text + advice)


def shorten(names: Iterable[str], most: int | None = 5) -> str:
    """The first names of a list, in one line; all of them with ``most=None``."""
    names = list(names)
    return '; '.join(names[:most]) + ('; ...' if len(names[:most]) < len(names) else '')

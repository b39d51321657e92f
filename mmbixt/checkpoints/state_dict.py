"""State dicts of all families: remove containers and wrappers, rename, check that weights fit."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor, nn

from mmbixt.checkpoints.adapters import check_adapters
from mmbixt.checkpoints.describe import describe
from mmbixt.checkpoints.errors import CheckpointError
from mmbixt.checkpoints.origin import file_of

# necks of the authors' classifiers, by names that only they have
_NECKS = {
    'neck.cls_token': 'mmbixt.ClassAttentionNeck',
    'neck.fc_norm.': 'mmbixt.LatentMeanNeck',
    'neck.norm.': 'mmbixt.BatchNormMeanNeck',
}
CONTAINERS = ('state_dict', 'model', 'state_dict_ema', 'model_ema')
# prefixes of DistributedDataParallel and torch.compile
_WRAPPERS = re.compile(r'^((module|_orig_mod)\.)+')


NOTHING = 'Nothing was loaded.'


class CheckpointMismatchError(CheckpointError):
    """The weights of the file do not fit the model."""


class NoWholeModelError(CheckpointMismatchError):
    """The file has no weights of the backbone by the names that they have in a whole model."""


def unwrap(checkpoint: Mapping[str, Any]) -> OrderedDict[str, Tensor]:
    """The weights of a checkpoint, without containers and without prefixes of wrappers.

    They keep torch's versions of modules (``_metadata``).
    """
    for _ in range(4):  # a container may contain itself
        parts = (checkpoint.get(name) for name in CONTAINERS)
        checkpoint = next((part for part in parts if isinstance(part, Mapping)), checkpoint)
    if not any(isinstance(value, Tensor) for value in checkpoint.values()):
        checkpoint = _join(checkpoint)
    weights = OrderedDict(
        (_WRAPPERS.sub('', key), value)
        for key, value in checkpoint.items()
        if isinstance(key, str) and isinstance(value, Tensor)
    )
    if hasattr(checkpoint, '_metadata'):
        weights._metadata = checkpoint._metadata
    return weights


def _join(parts: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of several models, such as 'student' and 'teacher', with these prefixes.

    States of optimizers are left out: their parameters have numbers, not names.
    """
    parts = {name: part for name, part in parts.items() if isinstance(part, Mapping)}
    return {f'{name}.{key}': x for name, part in parts.items() for key, x in part.items()}


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


@dataclass
class Differences:
    """How the weights of a file differ from those of a model; empty, thus False, if they fit."""

    number: int  # of weights of the model
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # with both shapes or types
    unknown: list[str] = field(default_factory=list)  # names in the file
    optional: list[str] = field(default_factory=list)  # missing, which is allowed

    def __len__(self) -> int:
        return len(self.missing) + len(self.wrong) + len(self.unknown)

    def lines(self) -> list[str]:
        """For an error message."""
        listed = (
            (self.missing, f'Missing in the file: {len(self.missing)} of {self.number} weights'),
            (self.wrong, f'Of another shape or type: {len(self.wrong)} of {self.number} weights'),
            (self.unknown, f'Not in the model: {len(self.unknown)} weights of the file'),
        )
        return [f'{title}: {shorten(names)}' for names, title in listed if names]


def compare(
    converted: Conversion, expected: Mapping[str, Tensor], optional: str | None = None
) -> Differences:
    """Compare the weights of a file with those of a model.

    Names that begin with a match of ``optional`` may be missing, if the file has none with the same
    beginning.
    """
    state, found = converted.weights, Differences(len(expected))
    for key, value in expected.items():
        if key not in state:
            may_be = optional and _is_optional(key, state, optional)
            (found.optional if may_be else found.missing).append(key)
        elif state[key].shape != value.shape:
            theirs, ours = tuple(state[key].shape), tuple(value.shape)
            found.wrong.append(f'{key}: {theirs} in the file, {ours} here')
        elif value.is_floating_point() and not state[key].is_floating_point():  # quantised
            theirs, ours = (str(x.dtype).removeprefix('torch.') for x in (state[key], value))
            found.wrong.append(f'{key}: {theirs} in the file, {ours} here')
    found.unknown = [converted.origins.get(key, key) for key in state if key not in expected]
    return found


def refuse(
    differences: Differences, model: str, file: str | None, what: str | None, *advice: str | None
) -> NoReturn:
    """Raise the error about a file that does not fit.

    mmengine loads checkpoints with ``strict=False``: without this error, a model without any
    matching weight trains from random weights after one line in the log.

    ``what`` the file is, such as 'is xcit_tiny_12_p8' or 'seems to be BiXT', may be unknown;
    ``advice`` are further lines.
    """
    name = file or 'The checkpoint'
    first = f'{name} does not fit {model}' + (f': the file {what}.' if what else '.')
    lines = [first, *differences.lines(), *advice]
    raise CheckpointMismatchError('\n  '.join(filter(None, lines)))


def _is_optional(key: str, state: Mapping[str, Tensor], optional: str) -> bool:
    part = re.search(optional, key)
    return part is not None and not any(other.startswith(key[: part.end()]) for other in state)


def name_file(error: CheckpointMismatchError, file: str | None) -> CheckpointMismatchError:
    """The same error with the name of the file, if it is known."""
    is_named = file is None or file in str(error)
    return error if is_named else CheckpointMismatchError(f'{file}: {error}')


def load_whole_state(model: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Load all weights of a model that is used without further training, or raise an error.

    mmengine only logs missing weights, and would test a model with random ones. Weights that the
    model does not have are ignored, as in mmengine, except those of a neck: the layers after it
    were trained with its output.
    """
    state = unwrap(checkpoint)
    name, file, what = type(model).__name__, file_of(state), f'seems to be {describe(state)}'
    expected = model.state_dict()
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except CheckpointMismatchError as error:
        raise name_file(error, file) from None
    except CheckpointError:  # about adapters
        raise
    except RuntimeError as error:  # weights of another shape; of authors' files only torch knows
        wrong = compare(Conversion(dict(state)), expected).wrong or [str(error)]
        refuse(Differences(len(expected), wrong=wrong), name, file, what, _config_of_run(file))
    missing = [key for key in missing if not key.endswith('num_batches_tracked')]
    if missing:
        refuse(Differences(len(expected), missing), name, file, what, _config_of_run(file))
    for module in model.modules():  # our backbones also load parts, for further training
        for attribute, text in (('not_in_file', 'lacks'), ('not_in_model', 'has more than')):
            if names := getattr(module, attribute, ()):
                text = f'{text} the weights of this {type(module).__name__}: {shorten(names)}.'
                raise CheckpointMismatchError(f'{file or "The checkpoint"} {text}')
    refuse_unused_neck(unexpected)
    check_adapters(model, checkpoint, file)


def _config_of_run(file: str | None) -> str | None:
    """Advice about the checkpoint of a run: the config that was written last before it.

    mmengine writes the config of each start, also of a test, into the same folder.
    """
    folder = Path(file).parent if file else Path('none')
    if not (folder / 'last_checkpoint').is_file() or not Path(file).is_file():
        return None
    times = {path: path.stat().st_mtime for path in folder.glob('*/vis_data/config.py')}
    times |= {path: path.stat().st_mtime for path in folder.glob('*.py')}
    before = [path for path in times if times[path] <= Path(file).stat().st_mtime]
    newest = max(before, key=times.get, default=None)
    return newest and f'The config of its run: {newest}'


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

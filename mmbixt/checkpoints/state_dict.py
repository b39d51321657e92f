"""State dicts of all families: remove containers and wrappers, compare with a model."""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

AVERAGED = ('state_dict_ema', 'model_ema', 'ema')
CONTAINERS = (*AVERAGED, 'state_dict', 'model', 'teacher')
# prefixes of DistributedDataParallel and torch.compile
_WRAPPERS = re.compile(r'^((module|_orig_mod)\.)+')
COUNT = 'num_batches_tracked'  # files of old versions of torch have none

State = Mapping[str, Tensor]
log = logging.getLogger('mmbixt').info  # see mmbixt.checkpoints.openmmlab
# functions that rename the weights of a whole model of the authors; each family's class adds one
whole_models: list[Callable[[State], State]] = []


def container(checkpoint: Mapping[str, Any]) -> str | None:
    """The name of what contains the weights of a checkpoint, averaged ones first, as in timm."""
    for name in CONTAINERS:
        part = checkpoint.get(name)
        if isinstance(part, Mapping) and any(isinstance(x, Tensor) for x in part.values()):
            return name
    return None


def unwrap(checkpoint: Mapping[str, Any]) -> OrderedDict[str, Tensor]:
    """The weights of a checkpoint, without containers and without prefixes of wrappers.

    Of a whole training with DINO (student, teacher and their projections) these are the teacher's
    backbone. The versions of modules that torch stores (``_metadata``) are kept.
    """
    part = container(checkpoint)
    if part in AVERAGED:
        log(f'The averaged weights of the file are used: {part}')
    checkpoint = checkpoint.get(part, checkpoint)
    weights = OrderedDict(
        (_WRAPPERS.sub('', key), value)
        for key, value in checkpoint.items()
        if isinstance(key, str) and isinstance(value, Tensor)
    )
    if part == 'teacher':
        return OrderedDict(take_part(weights, 'backbone.'))
    if hasattr(checkpoint, '_metadata'):
        weights._metadata = checkpoint._metadata
    return weights


def rename(state: State, new_name: Callable[[str], str | None]) -> dict[str, Tensor]:
    """The weights by new names, without those whose new name is None."""
    named = ((new_name(key), value) for key, value in state.items())
    return {name: value for name, value in named if name is not None}


def rename_whole(state: State) -> State:
    """The weights of a whole model of the authors by mmbixt's names; others as they are.

    It comes before the weights are given to the parts of a model, since each part gets only the
    weights with its own prefix.
    """
    for rename_family in whole_models:
        state = rename_family(state)
    return state


def take_part(state: State, prefix: str) -> dict[str, Tensor]:
    """The weights whose names begin with a prefix, by the rest of their names."""
    return {k.removeprefix(prefix): x for k, x in state.items() if k.startswith(prefix)}


def replace(state: dict[str, Tensor], prefix: str, weights: State) -> None:
    """Replace, in place, the weights whose names begin with a prefix."""
    for key in [key for key in state if key.startswith(prefix)]:
        del state[key]
    state.update((prefix + key, value) for key, value in weights.items())


def compare(state: State, expected: State, may_be_missing: str) -> tuple[list[str], list[str]]:
    """How the weights of a file differ from those of a model.

    Returns:
        Lines of an error message; and the weights that the file does not have, but need not have:
        their names begin with a match of ``may_be_missing``, and no name in the file begins so.
    """

    def is_new(key: str) -> bool:
        part = re.match(may_be_missing, key)
        return part is not None and not any(other.startswith(part[0]) for other in state)

    absent = [key for key in expected if key not in state and not key.endswith(COUNT)]
    new = [key for key in absent if is_new(key)]
    missing = [key for key in absent if key not in new]
    wrong = [
        f'{key}: {_kind(state[key])} in the file, {_kind(value)} in the model'
        for key, value in expected.items()
        if key in state and not key.endswith(COUNT) and _kind(state[key]) != _kind(value)
    ]
    unknown = [key for key in state if key not in expected]
    listed = (
        (missing, f'Missing in the file: {len(missing)} of {len(expected)} weights'),
        (wrong, f'Of another shape or type: {len(wrong)} of {len(expected)} weights'),
        (unknown, f'Not in the model: {len(unknown)} weights of the file'),
    )
    return [f'{title}: {shorten(names)}' for names, title in listed if names], new


def _kind(x: Tensor) -> str:
    """The shape, and the type of what are no real numbers, such as quantised weights."""
    return f'{tuple(x.shape)}' if x.is_floating_point() else f'{tuple(x.shape)} {x.dtype}'


def shorten(names: Iterable[str], most: int = 5) -> str:
    """The first names of a list, in one line."""
    names = list(names)
    return '; '.join(names[:most]) + ('; ...' if len(names[:most]) < len(names) else '')

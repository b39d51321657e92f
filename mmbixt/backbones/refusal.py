"""Errors about files that do not fit a backbone: the model in the file, and a setting that fits."""

from collections.abc import Callable, Mapping
from typing import NoReturn

from mmengine.runner import CheckpointLoader
from torch import Tensor

from mmbixt.backbones.recognise import identify
from mmbixt.checkpoints.describe import describe
from mmbixt.checkpoints.prefixes import advise, closest, without
from mmbixt.checkpoints.state_dict import (
    NOTHING,
    CheckpointMismatchError,
    Differences,
    refuse,
    unwrap,
)

Compare = Callable[[Mapping[str, Tensor]], Differences]  # the weights of a file with the backbone's


def refuse_file(
    model: str,
    source: Mapping[str, Tensor],
    file: str | None,
    compare: Compare,
    advice: Callable[[Mapping[str, Tensor]], str | None],
    prefix: str | None,
) -> NoReturn:
    """Refuse a file. If it has a larger model, compare the part of it that fits best.

    The names in ``source`` have no ``prefix``, which the config has removed; it is None for a part
    of a whole model, where no further prefix is searched. ``advice`` returns what the user can do.
    """
    prefixes = [] if prefix is None else closest(source, compare)
    if not prefixes:
        refuse(compare(source), model, file, identify(source), advice(source), NOTHING)
    part = without(prefixes[0], source)
    differences = compare(part)
    what = f'seems to be {describe(source)}; what begins with {prefixes[0]!r} {identify(part)}'
    fits = 'That does not fit either' if differences else 'That fits'
    setting = advise(file, [_dotted(prefix) + more for more in prefixes])
    text = f'{fits}. To load it: {setting}'
    refuse(differences, model, file, what, text, advice(part), NOTHING)


def refuse_prefix(file: str, prefix: str, compare: Compare) -> NoReturn:
    """Refuse the setting of a prefix that no weight of the file has."""
    state = unwrap(CheckpointLoader.load_checkpoint(file, 'cpu'))
    prefixes = closest(state, compare)
    if compare(without(prefixes[0] if prefixes else '', state)):
        text = f'The file {identify(state)}.'
    elif prefixes:
        text = f'It fits with another prefix: {advise(file, prefixes)}'
    else:
        text = 'It fits without a prefix.'
    text = f'No weight of {file} begins with {_dotted(prefix)!r}.\n  {text}\n  {NOTHING}'
    raise CheckpointMismatchError(text)


def _dotted(prefix: str) -> str:
    """As mmengine completes the prefix of a config."""
    return prefix and prefix.removesuffix('.') + '.'

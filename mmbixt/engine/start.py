"""Start a whole model from a file, and name or refuse what is not loaded.

mmengine loads weights with the same name and shape, and trains the others from random values. Here
a part of the model (a neck, a head) is loaded completely, or is completely missing in the file.
Only its layers with another number of outputs, such as classes, may be initialised anew.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from torch import Tensor, nn

from mmbixt.backbones.recognise import identify
from mmbixt.checkpoints.describe import describe
from mmbixt.checkpoints.origin import file_of
from mmbixt.checkpoints.prefixes import advise, closest, without
from mmbixt.checkpoints.state_dict import (
    CheckpointMismatchError,
    Differences,
    NoWholeModelError,
    name_file,
    refuse,
    refuse_unused_neck,
    shorten,
)

WHOLE = (
    'A file for load_from must have all weights of a part of the model, or none; only layers with '
    'another number of outputs (classes) are initialised anew.'
)
_PART = re.compile(r'^(roi_head\.)?[^.]+')  # of a name of a weight
_COUNT = 'num_batches_tracked'


def start_from(
    model: nn.Module, state: OrderedDict[str, Tensor]
) -> tuple[OrderedDict[str, Tensor], str]:
    """Load a file into a model, or raise an error.

    Args:
        model: our backbones, necks and heads in it compare their weights themselves.
        state: weights by their names in the file.

    Returns:
        The weights for mmengine, in which weights of the model replace those that the file does
        not have; and a message about these.
    """
    parts = [name for name, x in model.named_modules() if getattr(x, 'fits_itself', False)]
    own = tuple(f'{name}.' for name in parts)
    current = model.state_dict()
    wrong = {
        key: (tuple(state[key].shape), tuple(value.shape))
        for key, value in current.items()
        if key in state and state[key].shape != value.shape and not key.startswith(own)
    }
    tables = [key for key in wrong if not current[key].is_floating_point()]  # indices: no weights
    outputs = _of_other_classes({key: wrong[key] for key in wrong if key not in tables})
    found = Differences(len(current))
    given = OrderedDict(state)
    given._metadata = getattr(state, '_metadata', None)  # versions, which modules may convert from
    for key in (*outputs, *tables):
        del given[key]
    inner = [key for key in wrong if key in given]
    missing, unknown, loads = _load(model, given, inner)
    if not loads:  # else the modules have converted them: position tables for another image size
        found.wrong = [f'{key}: {wrong[key][0]} in the file, {wrong[key][1]} here' for key in inner]
    missing = [key for key in missing if key not in state]  # others: tables that are computed anew
    there = {part_of(key) for key in state if key in current} | {part_of(key) for key in parts}
    found.missing = [k for k in missing if part_of(k) in there and not k.endswith(_COUNT)]
    ours = {part_of(key) for key in current}
    found.unknown = [key for key in unknown if part_of(key) in ours and not key.endswith(_COUNT)]
    absent = sorted({part_of(key) for key in missing} - there)
    if found or 'backbone' in absent:
        found.missing = [key for key in missing if not key.endswith(_COUNT)]
        names, file, alone = (*wrong, *found.missing, *found.unknown), file_of(state), None
        if not any(part_of(key) == 'backbone' for key in names):
            alone = f'The backbone fits. To load it alone: {advise(file, ["backbone."])}'
        what = f'seems to be {describe(state)}'
        refuse(found, type(model).__name__, file, what, WHOLE, alone)
    refuse_unused_neck(unknown)
    for key in (*missing, *outputs, *tables):
        given[key] = current[key]
    for key in unknown:
        given.pop(key, None)
    layers = {key.rpartition('.')[0]: wrong[key] for key in sorted(outputs)}
    unused = sorted({part_of(key) for key in unknown} - ours)
    return given, _message(layers, absent, unused)


def part_of(key: str) -> str:
    """'neck' of 'neck.convs.0.weight', 'roi_head.bbox_head' of 'roi_head.bbox_head.fc_cls.bias'."""
    return _PART.match(key)[0]


def _of_other_classes(wrong: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]) -> set[str]:
    """The weights of heads whose shapes differ because the numbers of classes do.

    Outputs are the first dimension. A few heads have classes in another one, too (PointRend's
    points have scores as inputs): there the sizes differ by the number of the missing classes.
    """
    differ = {}  # dimension -> difference
    for key, (theirs, ours) in wrong.items():
        if len(theirs) == len(ours) and part_of(key) not in ('backbone', 'neck'):
            sizes = enumerate(zip(theirs, ours, strict=True))
            differ[key] = {i: old - new for i, (old, new) in sizes if old != new}
    outputs = [by[0] for by in differ.values() if [*by] == [0]]
    classes = min(outputs, key=abs, default=None)
    return {key for key, by in differ.items() if all(i == 0 or n == classes for i, n in by.items())}


def _load(
    model: nn.Module, state: Mapping[str, Tensor], wrong: Sequence[str]
) -> tuple[list[str], list[str], bool]:
    """The weights that are missing in the file, those that the model does not have, and whether
    the weights of ``wrong`` shapes load, which some modules convert."""
    try:
        if wrong:
            with suppress(RuntimeError):
                return *model.load_state_dict(state, strict=False), True
            state = {key: value for key, value in state.items() if key not in wrong}
        return *model.load_state_dict(state, strict=False), False
    except CheckpointMismatchError as error:
        if isinstance(error, NoWholeModelError):
            _advise_part(model, state)
        raise name_file(error, file_of(state)) from None
    except RuntimeError as error:  # a shape that is known only after renaming
        name = file_of(state) or 'The checkpoint'
        raise CheckpointMismatchError(f'{name} does not fit. {error}') from None


def _advise_part(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Raise an error with advice if a file that is no whole model fits a backbone of ours."""
    file = file_of(state)
    for name, part in model.named_modules():
        if not hasattr(part, 'differences'):
            continue
        prefixes = closest(state, part.differences) or ['']
        rest = without(prefixes[0], state)
        if not part.differences(rest):
            what = f'what begins with {prefixes[0]!r}' if prefixes[0] else 'the file'
            raise CheckpointMismatchError(
                f'No weight of {file or "the file"} begins with {name + "."!r}, so load_from '
                f'cannot use it. But {what} {identify(rest)}, and fits the {name}.\n  To start '
                f'from it, without load_from: {advise(file, prefixes)}'
            )


def _message(
    layers: Mapping[str, tuple[tuple[int, ...], ...]], absent: Iterable[str], unused: Iterable[str]
) -> str:
    """Which weights of the model are new, and which of the file are not used; empty if none."""
    counts = []
    for key, shapes in layers.items():
        old, new = next(sizes for sizes in zip(*shapes, strict=True) if sizes[0] != sizes[1])
        counts.append(f'{key} ({old} in the file, {new} here)')
    lines = (
        ('Initialised anew, because the numbers of outputs differ', counts),
        ('Initialised anew, because the file has none', absent),
        ('In the file, but not in the model', unused),
    )
    return '. '.join(f'{title}: {shorten(names, None)}' for title, names in lines if names)

"""What adapters (LoRA) were trained with: their checkpoints do not contain the other weights."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmbixt.checkpoints.errors import CheckpointError

META = 'mmbixt_adapters'  # key in a checkpoint's meta
Sums = tuple[tuple[int, ...], float, float]  # shape, sum, sum of the absolute values
Notes = Mapping[str, Mapping[str, Any]]  # of each LoRAModel: its weights' sums, its factors


def note_adapters(model: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Write sums of the other weights, and the factors of the adapters, into the meta."""
    if found := {name: _describe(part) for name, part in _adapted(model)}:
        checkpoint['meta'][META] = found


def notes_of(checkpoint: Mapping[str, Any]) -> Notes:
    """What :func:`note_adapters` has written; other files may have anything as their meta."""
    meta = checkpoint.get('meta')
    notes = meta.get(META) if isinstance(meta, Mapping) else None
    is_ours = isinstance(notes, Mapping) and all(map(_is_note, notes.values()))
    return notes if is_ours else {}


def _is_note(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return False
    weights, factors = part.get('weights', {}), part.get('factors')
    if not (isinstance(weights, Mapping) and isinstance(factors, Mapping)):
        return False
    has_sums = all(isinstance(x, tuple | list) and len(x) == 3 for x in weights.values())
    numbers = [*factors.values(), *(n for x in weights.values() for n in x[1:])] if has_sums else []
    return has_sums and all(isinstance(n, int | float) for n in numbers)


def check_adapters(model: nn.Module, checkpoint: Mapping[str, Any], file: str | None) -> None:
    """Raise an error if the model has other weights or factors than in training."""
    notes = notes_of(checkpoint)
    for name, part in _adapted(model):
        if name in notes:
            _compare(notes[name], _describe(part), name, file)


def check_adapted(network: nn.Module, notes: Notes, prefix: str, file: str | None) -> None:
    """The same for a network in a ``LoRAModel``, where only its own weights are known.

    Args:
        network: that of the ``LoRAModel``.
        notes: of the file.
        prefix: of the network's weights in a state dict.
        file: name of the checkpoint.
    """
    name = prefix.removesuffix('module.').removesuffix('.')
    if name not in notes and len(notes) == 1:  # of a part of the model that was trained
        name = next(iter(notes))
    if name in notes and not any(p.is_meta for p in network.parameters()):
        _compare(notes[name], _describe(network, 'module.'), name, file)


def _compare(noted: Mapping[str, Any], here: dict[str, Any], name: str, file: str | None) -> None:
    text = f'{file or "The checkpoint"} has adapters of {name} that were trained with'
    given, factors = noted['factors'], here['factors']
    for key in given.keys() & factors.keys():
        if given[key] != factors[key]:
            raise CheckpointError(
                f'{text} another alpha or rank: alpha / rank of {key} was {given[key]:g}, and the '
                f'config gives {factors[key]:g}.'
            )
    weights = here['weights']
    for key, weight in noted.get('weights', {}).items():
        if key not in weights or not _is_same(weight, weights[key]):
            raise CheckpointError(
                f'{text} other weights of {name} than it has here ({key} differs). Give its '
                'init_cfg the file that it had in training.'
            )


def _adapted(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each of mmpretrain's ``LoRAModel`` in a model."""
    for name, part in model.named_modules():
        if type(part).__name__ == 'LoRAModel' and '_fsdp' not in name:  # no process has all of it
            yield name, part


def _describe(part: nn.Module, prefix: str = '') -> dict[str, Any]:
    layers = ((prefix + key, x) for key, x in part.named_modules() if hasattr(x, 'scaling'))
    factors = {key: float(layer.scaling) for key, layer in layers}
    return dict(weights={prefix + key: x for key, x in _sums(part).items()}, factors=factors)


def _sums(model: nn.Module) -> dict[str, Sums]:
    """The sums of each frozen weight, and of batch norms' statistics.

    Not the bits: weights that are resized when they are loaded differ between processors. No other
    buffers: some networks compute them anew for each size of image.
    """
    kept = {key: x for key, x in model.named_parameters() if '.lora_' not in key}
    for name, norm in model.named_modules():
        if isinstance(norm, _BatchNorm) and norm.track_running_stats:
            kept[f'{name}.running_mean'] = norm.running_mean
            kept[f'{name}.running_var'] = norm.running_var
    found = {}
    for key, x in kept.items():
        x = x.detach().cpu()
        sums = (x.sum(dtype=torch.float64).item(), x.abs().sum(dtype=torch.float64).item())
        found[key] = (tuple(x.shape), *sums)
    return found


def _is_same(one: Sums, other: Sums) -> bool:
    """Whether two weights may be the same; also if one was resized for images of another size."""
    (shape, *sums), (other_shape, *other_sums) = one, other
    if shape != other_shape or not isfinite(sums[1]):
        return shape != other_shape or not isfinite(other_sums[1])
    return all(abs(a - b) <= 1e-4 * sums[1] + 1e-12 for a, b in zip(sums, other_sums, strict=True))

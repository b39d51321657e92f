"""What adapters (LoRA) were trained with: their checkpoints do not contain the other weights."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from mmbixt.checkpoints.errors import CheckpointError

_META = 'mmbixt_adapters'  # key in a checkpoint's meta


def note_adapters(model: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Write sums of the other weights, and the factors of the adapters, into the meta."""
    if found := _describe(model):
        checkpoint['meta'][_META] = found


def check_adapters(model: nn.Module, checkpoint: Mapping[str, Any], file: str | None) -> None:
    """Raise an error if the model has other weights or factors than in training."""
    noted = (checkpoint.get('meta') or {}).get(_META)
    if not noted:
        return
    found = _describe(model)
    for name in noted.keys() & found.keys():
        given, here = noted[name]['factors'], found[name]['factors']
        other = [key for key in given if key in here and given[key] != here[key]]
        text = f'{file or "The checkpoint"} has adapters of {name} that were trained with'
        if other:
            factors = f'{given[other[0]]:g}, and the config gives {here[other[0]]:g}'
            raise CheckpointError(
                f'{text} another alpha or rank: alpha / rank of {other[0]} was {factors}.'
            )
        here = found[name]['sums']
        if not all(key in here and _close(x, here[key]) for key, x in noted[name]['sums'].items()):
            raise CheckpointError(
                f'{text} other weights of {name} than it has here. Give its init_cfg the file '
                'that it had in training.'
            )


def _describe(model: nn.Module) -> dict[str, dict[str, Any]]:
    """For each of mmpretrain's ``LoRAModel`` in a model."""
    found = {}
    for name, part in model.named_modules():
        if type(part).__name__ == 'LoRAModel' and '_fsdp' not in name:  # no process has all of it
            layers = ((key, x) for key, x in part.named_modules() if hasattr(x, 'scaling'))
            factors = {key: float(layer.scaling) for key, layer in layers}
            found[name] = dict(sums=_sums(part), factors=factors)
    return found


def _sums(model: nn.Module) -> dict[str, tuple[float, float]]:
    """The sum of each weight and of its absolute values; also of batch norms' statistics.

    Not the bits: weights that are resized when they are loaded differ between processors.
    """
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    values = {k: x.detach().double() for k, x in state.items() if '.lora_' not in k}
    kept = {k: x for k, x in values.items() if state[k].is_floating_point()}
    return {key: (x.sum().item(), x.abs().sum().item()) for key, x in kept.items()}


def _close(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return all(abs(a - b) <= 1e-4 * one[1] + 1e-12 for a, b in zip(one, other, strict=True))

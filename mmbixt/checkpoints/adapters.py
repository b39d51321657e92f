"""What adapters (LoRA) were trained with: their checkpoints do not contain the other weights."""

import zlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from mmbixt.checkpoints.errors import CheckpointError

_META = 'mmbixt_adapters'  # key in a checkpoint's meta


def note_adapters(model: nn.Module, checkpoint: Mapping[str, Any]) -> None:
    """Write a checksum of the other weights, and the factors of the adapters, into the meta."""
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
        if noted[name]['checksum'] != found[name]['checksum']:
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
            found[name] = dict(checksum=_checksum(part), factors=factors)
    return found


def _checksum(model: nn.Module) -> int:
    total = 0
    for name, weight in model.named_parameters():
        if '.lora_' not in name:
            total = zlib.crc32(weight.detach().cpu().float().numpy().tobytes(), total)
    return total

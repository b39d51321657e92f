"""Files of whole models from other code bases, as today's mm models.

A module sees only its own weights when a state dict is loaded, so what has to move from one module
to another moves here, as soon as a file is read.
"""

from collections.abc import Mapping
from typing import Any

from mmengine.logging import print_log
from torch import Tensor

from mmbixt.checkpoints.state_dict import CONTAINERS, Conversion, unwrap
from mmbixt.checkpoints.xcit import convert_whole_xcit


def recognise_whole_model(
    state: Mapping[str, Tensor],
) -> tuple[str, Conversion] | tuple[None, None]:
    """What whole model of other code these weights are, and the weights in today's layout."""
    converted = convert_whole_xcit(state)
    return (None, None) if converted is None else ('a whole model of the XCiT authors', converted)


def convert_whole_model(checkpoint: Any) -> Any:
    """A checkpoint with its state dict in today's layout, or as it is if no layout is recognised.

    Args:
        checkpoint: what a file holds.
    """
    if not isinstance(checkpoint, Mapping):
        return checkpoint
    what, converted = recognise_whole_model(unwrap(checkpoint))
    if converted is None:
        return checkpoint
    print_log(f'The file is {what}; its weights take the names that they have today.', 'current')
    rest = {key: value for key, value in checkpoint.items() if not isinstance(value, Tensor)}
    for container in CONTAINERS:
        rest.pop(container, None)
    return {**rest, 'state_dict': converted.weights}

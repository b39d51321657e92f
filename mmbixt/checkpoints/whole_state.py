"""Weights for a model that is to be used as it is: all of them, or an error."""

from collections.abc import Mapping

from torch import Tensor, nn

from mmbixt.checkpoints.describe import describe
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, shorten


def load_whole_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load weights that leave none of the model's as they were initialised.

    mmengine notes those in the log and goes on, and a model that is half random gets figures too.
    What the model has no use for is left alone, as mmengine does.

    Args:
        model: the whole of it.
        state: of a checkpoint.
    """
    try:
        missing = model.load_state_dict(state, strict=False).missing_keys
    except CheckpointMismatchError:
        raise
    except RuntimeError as error:  # weights of another shape
        raise CheckpointMismatchError(f'The checkpoint does not fit. {error}') from None
    missing = [key for key in missing if not key.endswith('num_batches_tracked')]
    if missing:
        raise CheckpointMismatchError(
            f'The checkpoint lacks {len(missing)} weights of the model: {shorten(missing)}. It '
            f'seems to be {describe(state)}.'
        )

"""Errors of reading checkpoints."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used."""


class CheckpointFileError(CheckpointError):
    """There is no such file, or it cannot be downloaded or read."""


class CheckpointMismatchError(CheckpointError):
    """The weights of the file do not fit the model."""

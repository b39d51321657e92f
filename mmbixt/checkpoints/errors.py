"""Errors of reading checkpoints."""

from mmbixt.errors import UserError


class CheckpointError(UserError, RuntimeError):
    """A checkpoint that cannot be used."""


class CheckpointFileError(CheckpointError):
    """There is no such file, or it cannot be downloaded or read."""


class CheckpointMismatchError(CheckpointError):
    """The weights of the file do not fit the model."""

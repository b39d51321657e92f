"""Errors of reading checkpoints."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used."""


class CheckpointFileError(CheckpointError):
    """The file cannot be read."""


class DownloadError(CheckpointFileError):
    """The file cannot be downloaded."""


class CheckpointMismatchError(CheckpointError):
    """The weights of the file do not fit the model."""

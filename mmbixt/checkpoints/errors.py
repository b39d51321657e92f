"""Errors of reading checkpoints."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used."""


class CheckpointFileError(CheckpointError):
    """The file is not a checkpoint, or cannot be loaded on this machine."""


class BrokenCheckpointError(CheckpointFileError):
    """The file is damaged, or was not written by ``torch.save``."""


class UnsupportedContentError(CheckpointFileError):
    """The file is complete, but has content that mmbixt does not read."""


class DownloadError(CheckpointFileError):
    """The file cannot be downloaded."""


class UnsafeCheckpointError(CheckpointError):
    """The file contains more than data: loading it could execute code."""

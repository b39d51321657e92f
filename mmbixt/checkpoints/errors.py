"""Errors of reading checkpoints."""


class CheckpointFileError(RuntimeError):
    """The file is not a checkpoint, or cannot be loaded on this machine."""


class BrokenCheckpointError(CheckpointFileError):
    """The file is damaged, or was not written by ``torch.save``."""


class UnsupportedContentError(CheckpointFileError):
    """The file is complete, but has content that mmbixt does not read."""


class DownloadError(CheckpointFileError):
    """The file cannot be downloaded."""


class UnsafeCheckpointError(RuntimeError):
    """The file contains more than data: loading it could execute code."""

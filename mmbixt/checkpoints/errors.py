"""What can be wrong with a checkpoint."""


class CheckpointFileError(RuntimeError):
    """The file is no checkpoint, or cannot be loaded here."""


class BrokenCheckpointError(CheckpointFileError):
    """The file is not what ``torch.save`` wrote."""


class UnsupportedContentError(CheckpointFileError):
    """The file is whole, but holds what mmbixt does not read."""


class DownloadError(CheckpointFileError):
    """The file cannot be had."""


class UnsafeCheckpointError(RuntimeError):
    """The file asks for something that is not data."""

"""Writing files completely or not at all."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # a full disk, or a read-only one


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """Add the name of a file to errors about a full disk, which have none while it is written."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            error.filename = error.filename or str(path)
        raise


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary file, renamed to ``path`` at the end, or deleted after an error.

    Devices and pipes are written directly; of a link the file that it leads to is replaced.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f'.{path.stem}.part{path.suffix}')
    try:
        with named(path):
            yield part
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)

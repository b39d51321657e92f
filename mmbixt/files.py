"""Writing files completely or not at all."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copymode
from tempfile import TemporaryDirectory
from uuid import uuid4

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

    Devices and pipes are written directly. A link stays: its target is replaced by a file of the
    same mode. What is written to ``/dev/stdout`` follows what was printed before.
    """
    path = Path(path)
    streams = {Path('/dev/stdout'): sys.stdout, Path('/dev/stderr'): sys.stderr}
    # output may be redirected to a file, which opening it again would truncate
    if (stream := streams.get(path)) and hasattr(stream, 'buffer'):
        with TemporaryDirectory() as folder:
            yield (part := Path(folder, 'part'))
            stream.flush()
            stream.buffer.write(part.read_bytes())
        return
    if path.exists() and not path.is_file():
        with named(path):
            yield path
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # a random name, because another process may write the same file
    part = path.with_name(f'.{uuid4().hex[:12]}{path.suffix[:20]}')
    try:
        with named(path):
            if path.exists() or path.is_symlink():  # a link to itself
                path.open('ab').close()  # an error if it may not be written
            yield part
            if path.exists():
                with suppress(PermissionError):  # some file systems have no modes
                    copymode(path, part)
            part.replace(path)
    except OSError as error:
        if error.filename == str(part):  # a folder that is read-only
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)

"""The one checkpoint in a zip archive that somebody publishes."""

import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

_SUFFIXES = ('.pth', '.pt', '.pth.tar', '.bin', '.ckpt')


class ArchiveError(RuntimeError):
    """It is damaged, or holds something else."""


def unpack(archive: Path, target: Path, largest: int) -> bool:
    """Write an archive's checkpoint to a file.

    Args:
        archive: its path.
        target: the file to write.
        largest: bytes that the checkpoint may have.

    Returns:
        Whether it was written: not if the archive is a checkpoint itself, which torch writes as zip
        archives too.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            member = _checkpoint_in(opened)
            if member is None:
                return False
            if member.file_size > largest:  # never more than that is read from it
                raise ArchiveError(f'{member.filename} is larger than {largest >> 20} MiB')
            with opened.open(member) as source, target.open('wb') as file:
                shutil.copyfileobj(source, file)  # compares the checksum
        return True
    # how zipfile fails on archives that are damaged, cut off, encrypted or of an unknown method
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ArchiveError(str(error)) from error


def _checkpoint_in(archive: zipfile.ZipFile) -> zipfile.ZipInfo | None:
    """The member that is a checkpoint; None if the archive is one itself."""
    members = {}
    for info in archive.infolist():
        path = PurePosixPath(info.filename)
        is_hidden = path.name.startswith('.') or '__MACOSX' in path.parts  # left by a file manager
        if not info.is_dir() and not is_hidden:
            members[path] = info
    if any(path.name == 'data.pkl' and len(path.parts) == 2 for path in members):
        return None
    checkpoints = [path for path in members if path.name.endswith(_SUFFIXES)]
    if len(checkpoints) != 1:
        names = ', '.join(map(str, members)) or 'nothing'
        raise ArchiveError(f'it holds {len(checkpoints)} checkpoints among {names}')
    return members[checkpoints[0]]

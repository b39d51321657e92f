"""Unpack the checkpoint from a published zip archive."""

import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from mmbixt.checkpoints.errors import DownloadError

_SUFFIXES = ('.pth', '.pt', '.pth.tar', '.bin', '.ckpt')


def unpack(archive: Path, target: Path, largest: int) -> bool:
    """Write the checkpoint in an archive, at most ``largest`` bytes, to ``target``.

    Returns False, and writes nothing, if the archive itself is a checkpoint of ``torch.save``.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            files = {PurePosixPath(i.filename): i for i in opened.infolist() if not i.is_dir()}
            if any(path.name == 'data.pkl' and len(path.parts) == 2 for path in files):
                return False
            # file managers add hidden files
            found = [p for p in files if p.name.endswith(_SUFFIXES) and p.name[0] != '.']
            if len(found) != 1:
                names = ', '.join(map(str, files)) or 'nothing'
                raise DownloadError(f'it holds {len(found)} checkpoints among {names}')
            member = files[found[0]]
            if member.file_size > largest:  # zipfile reads no more than the stated size
                raise DownloadError(f'{member.filename} is larger than {largest >> 20} MiB')
            with opened.open(member) as source, target.open('wb') as file:
                shutil.copyfileobj(source, file)  # compares the checksum
        return True
    # errors of zipfile for archives that are damaged, truncated, encrypted or of unknown method
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f'it should be a zip archive of one checkpoint: {error}') from error

"""Check the two file formats of ``torch.save`` before torch reads a file.

Since torch 1.6 a checkpoint is a zip archive of a pickle and one record per storage. Legacy files
are five pickles, followed by the storages.
"""

import io
import struct
import tarfile
import zipfile
from typing import BinaryIO

import torch

from mmbixt.checkpoints.calls import require
from mmbixt.checkpoints.errors import UnsafeCheckpointError
from mmbixt.checkpoints.inspection import Inspection

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_FOLDER = 0x10  # bit of the DOS attributes of a folder


def inspect_file(file: BinaryIO) -> None:
    """Raise an error unless a file is complete and contains only data."""
    size = file.seek(0, 2)
    file.seek(0)
    start = file.read(512)
    file.seek(0)
    if start[:4] == b'PK\x03\x04':
        _inspect_zip(file, size)
    elif _is_tar(start):
        raise UnsafeCheckpointError('a tar archive (of torch before 0.1.10)')
    else:
        require(start[:1] == b'\x80', 'the file does not begin like a checkpoint')
        _inspect_legacy(file, size)
    file.seek(0)


def _is_tar(start: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(start, 'utf-8', 'surrogateescape')
    except tarfile.HeaderError:
        return False
    return True


def _inspect_zip(file: BinaryIO, size: int) -> None:
    _check_end(file, size)
    with zipfile.ZipFile(file) as archive:
        records = archive.infolist()
    # torch allocates the sizes that the archive states
    require(sum(info.file_size for info in records) <= size, 'records larger than the file')
    file.seek(0)
    reader = torch._C.PyTorchFileReader(file)  # the reader of torch.load
    if 'constants.pkl' in reader.get_all_records():
        raise UnsafeCheckpointError('a TorchScript program')
    require(bool(records), 'an empty archive')
    folder = records[0].filename.partition('/')[0] + '/data/'
    sizes = {}
    for info in records:
        # torch and zipfile read other names differently: zipfile ends them at a zero byte
        is_plain = info.filename.isascii() and info.filename == info.orig_filename
        require(is_plain, 'a record with an unusual name')
        # torch reads nothing from folders, and returns uninitialised memory
        is_folder = info.filename.endswith('/') or info.external_attr & _FOLDER
        require(not is_folder, 'a folder among the records')
        is_stored = info.compress_type == zipfile.ZIP_STORED
        is_stored &= info.compress_size == info.file_size
        require(is_stored, 'compressed records (torch writes none)')
        if info.filename.startswith(folder):
            sizes[info.filename.removeprefix(folder)] = info.file_size
    # torch ignores the case of names
    require(len({info.filename.lower() for info in records}) == len(records), 'a record twice')
    if any(info.CRC for info in records):  # all are 0 after torch.serialization.set_crc32_options
        with zipfile.ZipFile(file) as archive:
            is_same = archive.testzip() is None
        require(is_same, 'a record with other content than was saved (CRC-32)')
    Inspection(io.BytesIO(reader.get_record('data.pkl')), size, sizes).load()


def _check_end(file: BinaryIO, size: int) -> None:
    """The list of records must be at the end, where all programs look for it first."""
    require(size >= 22, 'the file ends early')
    file.seek(max(size - 98, 0))
    end = file.read()
    require(end[-22:-18] == b'PK\5\6' and end[-2:] == b'\0\0', 'the archive has no end')
    length, start = struct.unpack('<LL', end[-10:-2])
    list_end = size - 22
    if end[-42:-38] == b'PK\6\7':  # zip64: 4 GB or more
        list_end = size - 98
        require(struct.unpack('<Q', end[-34:-26])[0] == list_end, 'the archive has two ends')
        require(end[:4] == b'PK\6\6', 'the archive has no end')
        length, start = struct.unpack('<QQ', end[40:56])
    require(start + length == list_end, 'the archive ends at another place than it states')


def _inspect_legacy(file: BinaryIO, size: int) -> None:
    magic = Inspection(file, size).load()
    version = Inspection(file, size).load()
    require((magic, version) == (_MAGIC, _PROTOCOL), 'the file does not begin like a checkpoint')
    Inspection(file, size).load()  # sizes of integers on the machine that wrote the file
    main = Inspection(file, size)
    main.load()
    keys = Inspection(file, size).load()
    require(type(keys) is list and all(type(key) is str for key in keys), 'no list of storages')
    # storages without content would be uninitialised memory
    require(sorted(keys) == sorted(main.storages), 'storages without content, or content twice')
    position = file.tell()
    for key in keys:
        storage = main.storages[key]
        file.seek(position)
        count = file.read(8)
        require(len(count) == 8, 'the file ends before its last storage')
        stated = int.from_bytes(count, 'little', signed=True) * storage.dtype.itemsize
        require(stated == storage.size, f'{stated} bytes in a storage of {storage.size}')
        position += 8 + storage.size
    require(position <= size, f'the file ends {position - size} bytes early')

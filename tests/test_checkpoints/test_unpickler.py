"""Data are read; code, damaged files and malicious files are refused."""

import collections
import io
import os
import pickle
import struct
import tarfile
import time
import zipfile

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.optim.scheduler.param_scheduler import OneCycleParamScheduler
from test_checkpoints import fuzz
from test_checkpoints.fuzz import integer, text
from test_checkpoints.layouts import saved, zipped

from mmbixt.checkpoints.errors import (
    BrokenCheckpointError,
    UnsafeCheckpointError,
    UnsupportedContentError,
)
from mmbixt.checkpoints.loader import TRUST, load

LEGACY = dict(_use_new_zipfile_serialization=False)
both_formats = pytest.mark.parametrize('options', [{}, LEGACY], ids=['zip', 'legacy format'])


@pytest.fixture
def read(tmp_path):
    """Load a file with these bytes."""

    def read(content):
        (tmp_path / 'x.pth').write_bytes(content)
        return load(str(tmp_path / 'x.pth'))

    return read


@both_formats
@pytest.mark.parametrize('kind', fuzz.data())
def test_data_are_read(read, kind, options):
    value = fuzz.data()[kind]
    assert repr(read(saved(value, **options))) == repr(value)


class Calls:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


ATTACKS = {
    'a shell command': (Calls(os.system, 'touch MARK'), 'posix.system'),
    'getattr of a module': (Calls(getattr, Calls(__import__, 'os'), 'system'), '__import__'),
    'getattr of a class': (Calls(getattr, np.ndarray, 'tofile'), "attribute 'tofile'"),
    'objects in arrays': (np.array([{'a': 1}], dtype=object), "type 'O8'"),
    'getattr of a scheduler': (Calls(getattr, OneCycleParamScheduler, '__init__'), '__init__'),
}


@both_formats
@pytest.mark.parametrize('attack', ATTACKS)
def test_code_is_refused_by_name_and_not_run(read, tmp_path, monkeypatch, attack, options):
    payload, name = ATTACKS[attack]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsafeCheckpointError, match=f'(?s)x.pth.*{name}.*{TRUST}.*--trust-checkp'):
        read(saved({'w': payload}, **options))
    assert not (tmp_path / 'MARK').exists()


def test_truncated_files_are_reported_as_incomplete(read):
    """The error never advises to trust the file."""
    value = {'w': torch.randn(9), 'a': np.ones(3), 's': {1}}
    whole, parts = saved(value), saved(value, **LEGACY)
    cut = [content[:n] for content in (whole, parts) for n in range(0, len(content), 9)]
    for content in (*cut, b'not a checkpoint', b'\x80\x02garbage', b'PK\x03\x04broken'):
        message = rf'x\.pth \({len(content)} bytes\) cannot be read: it may be incomplete'
        with pytest.raises(BrokenCheckpointError, match=message):
            read(content)


@pytest.fixture
def without_checksums():
    torch.serialization.set_crc32_options(False)
    yield
    torch.serialization.set_crc32_options(True)


def test_files_without_checksums_are_read(without_checksums, read):
    content = saved({'weight': torch.arange(100.0)})
    assert torch.equal(read(content)['weight'], torch.arange(100.0))


def as_zip(body, compression=zipfile.ZIP_STORED, a=bytes(4), **storages):
    records = {'archive/data.pkl': b'\x80\x02' + body + b'.', 'archive/version': '3'}
    records |= {'archive/data/a': a} | {
        f'archive/data/{name}': content for name, content in storages.items()
    }
    return zipped(records, compression)


def as_legacy(body, keys=(), storages=b''):
    start = saved(None, **LEGACY).removesuffix(b'\x80\x02N.\x80\x02]q\x00.')
    return start + b'\x80\x02' + body + b'.' + pickle.dumps(list(keys), 2) + storages


def storage(count, view=b'', key=None):
    words = text('storage') + b'ctorch\nFloatStorage\n' + (key or text('a')) + text('cpu')
    return b'(' + words + integer(count) + view + b'tQ'


ORDERED_DICT = b'ccollections\nOrderedDict\n)R'


def tensor(storage, count, hooks=ORDERED_DICT):
    sizes = b'K\x00' + integer(count) + b'\x85' + integer(1) + b'\x85'
    return b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + sizes + b'\x89' + hooks + b'tR'


FLOAT8 = b'cnumpy\ndtype\nX\x02\x00\x00\x00f8\x89\x88\x87Rq\x08'
ARRAY = b'cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85' + text('b') + b'\x87R'


def dtype_state(size, order='|', alignment=1):
    return b'(K\x03' + text(order) + b'NNN' + integer(size) + integer(alignment) + b'K\x00tb'


def array_state(dtype, content, count=1):
    content = b'c_codecs\nencode\n' + text(content) + text('latin1') + b'\x86R'
    return b'(K\x01' + integer(count) + b'\x85' + dtype + b'\x89' + content + b'tb'


TWO_LETTERS, ONE_LETTER = text('\xc3\xa9'), b'U\x02\xc3\xa9'  # both are names of the same bytes
ENCODE = b'c_codecs\nencode\n'
NAMESPACE = b'cargparse\nNamespace\n)\x81'
DOUBLING = b'q\xc8h\xc8\x86' * 100
LISTS = b']q\xc8' + b'](h\xc8h\xc8eq\xc8' * 100
ZERO = struct.pack('<q', 1) + bytes(4)
TEXT_SHAPE = array_state(FLOAT8, 'a').replace(integer(1), text('aaa') + integer(9) + b'\x86', 1)
NAMES_ALIKE = tensor(storage(1, b'N', TWO_LETTERS), 1) + tensor(storage(1, b'N', ONE_LETTER), 1)
VIEW = storage(9, b'(' + text('v') + b'K\x00K\x09t') + tensor(storage(9, b'N'), 1 << 20)
MANY_NAMES = b'}(' + b''.join(text(str(n)) + b'N' for n in range(3000)) + b'u'
FLAGS = ORDERED_DICT + b'}' + text('neg') + b']s'
NAMED = b'(' + text('storage') + b'ctorch\nFloatStorage\n'


def damaging():
    """(part of the error, content of the file)."""
    # heap corruption in numpy: a dtype is changed after an array has used it
    used = ARRAY + array_state(FLOAT8 + dtype_state(-1, '<', -1), 'a' * 8)
    yield 'a second state of dtype', as_zip(b'(' + used + b'h\x08' + dtype_state(4096) + b't')
    beyond = ARRAY + array_state(FLOAT8 + dtype_state(4096), 'a' * 8, 1 << 20)
    yield 'an array of another size', as_zip(beyond)
    constructor = b'cnumpy\nndarray\nK\x01\x85' + text('O8') + text('AAAAAAAA') + b'\x87R'
    yield 'a call of an object that is not a function', as_zip(constructor)
    yield 'a function or class among the data', as_zip(b'ctorch\nFloatStorage\n')
    # states
    on_class = b'ccollections\nOrderedDict\n}' + text('x') + b'K\x01sb'
    yield 'a state for an object without one', as_zip(on_class)
    shared = b'(' + MANY_NAMES + b'q\x01' + (NAMESPACE + b'h\x01b') * 3000 + b't'
    yield 'the same data many times', as_zip(shared)
    yield 'an unexpected state of array', as_zip(ARRAY + TEXT_SHAPE)
    # hooks, which a backward pass calls; also added later
    yield 'a tensor with hooks', as_zip(tensor(storage(1), 1, ORDERED_DICT + b'K\x01K\x02s'))
    later = b'(' + tensor(storage(1), 1, ORDERED_DICT + b'q\x05') + b'h\x05K\x01K\x02st'
    yield 'items for an object that is not a dict', as_zip(later)
    shared = tensor(storage(1), 1, ORDERED_DICT + b'q\x05') + tensor(storage(1), 1, b'h\x05')
    yield 'a tensor with hooks', as_zip(b'(' + shared + b't')
    yield 'an unknown device', as_zip(b'ctorch\ndevice\n' + text('cuda') + b'M\x00\x01\x86R')
    yield 'an unknown device', as_zip(b'ctorch\ndevice\n' + text('cuda:300') + b'\x85R')
    whole = storage(1).replace(b'Float', b'Int')
    yield 'two descriptions', as_zip(tensor(storage(1), 1) + tensor(whole, 1) + b'\x86')
    # uninitialised or freed memory in torch (heap corruption)
    yield 'exceeds its storage', as_legacy(tensor(storage(1, b'N'), 9), 'a', ZERO)
    yield 'storages without content', as_legacy(tensor(storage(1, b'N'), 1))
    alike = as_legacy(b'(' + NAMES_ALIKE + b't', ['\xc3\xa9'], ZERO)
    yield 'torch.save would describe differently', alike
    yield 'a record with an unusual name', as_zip(b'N', **{'\xe9': b''})
    yield 'a storage of 4 bytes that should have 36', as_zip(tensor(storage(9), 9))
    moves = as_legacy(b'(' + VIEW + b't', 'v', struct.pack('<q', 9) + bytes(36))
    yield 'torch.save would describe differently', moves
    # endless loops, or too much memory
    for opcode in (b'}', b'(', b']', b')' + b'\x85' * 9, b'}NNs'):
        yield 'too many objects', as_zip(b'(' + opcode * 100_000 + b't')
    doubled = NAMED + b')' + DOUBLING + text('cpu') + b'K\x01tQ'
    yield 'torch.save would describe differently', as_zip(doubled)
    yield 'a call of an object that is not a function', as_zip(LISTS + b')R')
    hexed = ENCODE * 60 + text('aa') + (text('hex') + b'\x86R') * 60
    yield 'an unknown encoding', as_zip(hexed)
    once = b'(' + ENCODE + b'q\x01' + text('a' * 100_000) + text('latin1') + b'\x86q\x02R'
    yield 'the same data many times', as_zip(once + b'h\x01h\x02R' * 10_000 + b't')
    numbers = b'(' + b''.join(b'J' + struct.pack('<i', n) for n in range(50_000)) + b'e'
    sets = b'(cbuiltins\nset\nq\x01]q\x02' + numbers + b'\x85R' + b'h\x01h\x02\x85R' * 9 + b't'
    yield 'the same data many times', as_zip(sets)
    # archives that two programs read differently
    yield 'compressed records', as_zip(text('a' * 10), zipfile.ZIP_DEFLATED)
    yield 'records larger than the file', as_zip(text('a' * 1_000_000), zipfile.ZIP_DEFLATED)
    yield 'a record twice', as_zip(b'N', A=bytes(4))
    # torch reads nothing from folders, and returns uninitialised memory
    yield 'a folder among the records', as_zip(tensor(storage(1, b'0/'), 1), **{'0/': bytes(4)})
    file = as_zip(tensor(storage(1), 1))
    attributes = file.rindex(b'PK\x01\x02') + 38  # of the last record
    yield 'a folder among the records', file[:attributes] + b'\x10' + file[attributes + 1 :]
    yield 'the archive has no end', as_zip(b'N') + bytes(9)
    yield 'ends at another place than it states', as_zip(b'N') + as_zip(text('other'))
    weights = saved(torch.arange(100.0))
    five = torch.arange(90.0, 95).numpy().tobytes()
    yield 'a record with other content than was saved', weights.replace(five, five[::-1])


# not reported as broken, because broken downloads are removed
UNREAD = [
    # replaces methods of a dict
    ('OrderedDict with attributes', as_zip(ORDERED_DICT + b'}' + text('keys') + b'K\x01sb')),
    # hashes that take forever, or collide
    ('a key that is neither', as_zip(b'})' + DOUBLING + b'K\x01s')),
    ('a key that is neither', as_zip(b'cbuiltins\nset\n])' + DOUBLING + b'a\x85R')),
    ('a key that is neither', saved({(1, 2): 3, 6j: 4})),
    ('unordered numbers as', saved([{2**n + i: 0 for i in range(999)} for n in range(30, 41)])),
    ('unordered numbers as keys', saved({n: 0 for i in range(20_000) for n in (i, i << 4)})),
    ('negated view', as_zip(tensor(storage(1), 1, FLAGS))),
    ('too many nested objects', as_zip(b']' * 20_000 + b'a' * 19_999)),
    ('beyond 1 GiB', saved(torch.ones(1).expand(1 << 15, 1 << 15))),
]


def test_valid_handmade_files_are_read(read):
    """So the files below are refused for their faults, not for the way in which they are made."""
    array = ARRAY + array_state(FLOAT8 + dtype_state(-1, '<', -1), 'a' * 8)
    body = b'(' + tensor(storage(1), 1) + array + b't'
    legacy = as_legacy(body.replace(b'tQ', b'NtQ'), 'a', ZERO)
    for content in (as_zip(body), legacy):
        number, array = read(content)
        assert number.tolist() == [0]
        assert array.tobytes() == b'a' * 8


LONG_NAME = as_zip(b'cx\x1b' + b'a' * 100_000 + b'\nname\n')
TORCHSCRIPT = {'archive/data.pkl': b'', 'archive/constants.pkl': b'', 'archive/version': '3'}
REFUSED = [
    *((BrokenCheckpointError, *case) for case in damaging()),
    *((UnsupportedContentError, f'{message}.*{TRUST}', content) for message, content in UNREAD),
    (UnsafeCheckpointError, r"contains 'x\\x1ba", LONG_NAME),
    (UnsafeCheckpointError, 'TorchScript', zipped(TORCHSCRIPT, zipfile.ZIP_STORED)),
    (UnsafeCheckpointError, 'tar archive', tarfile.TarInfo('storages').tobuf()),
]


@pytest.mark.parametrize(('error', 'message', 'content'), REFUSED)
def test_malicious_files_are_refused(read, error, message, content):
    with pytest.raises(error, match=rf'(?s)x\.pth.*{message}') as caught:
        read(content)
    assert type(caught.value) is error
    assert len(str(caught.value)) < 1000


def test_functions_of_a_log_history_are_restored(read):
    assert read(saved(HistoryBuffer([1.0, 5.0], [1, 1]))).mean() == 3


def test_allowed_names_of_torch_are_not_used_and_are_restored(read):
    with torch.serialization.safe_globals([np.dtype, collections.deque]):
        assert read(saved(np.ones(3))).sum() == 3
        assert {np.dtype, collections.deque} <= set(torch.serialization.get_safe_globals())


def test_checkpoint_of_numpy_1(read):
    names = b'numpy._core.multiarray', b'numpy.core.multiarray'
    with zipfile.ZipFile(io.BytesIO(saved([np.ones(3), np.float32(2)]))) as archive:
        array, scalar = read(as_zip(archive.read('archive/data.pkl')[2:-1].replace(*names)))
    assert (array.sum(), scalar) == (3, 2)


def test_fuzzed_files_are_loaded_or_refused(tmp_path):
    """With FUZZ_SECONDS (`make fuzz`) for that time, with new files in each run."""
    limits = dict(count=400, seed=7)
    if seconds := os.environ.get('FUZZ_SECONDS'):
        limits = dict(seconds=float(seconds), seed=int(time.time()))
    outcomes = fuzz.run(tmp_path, **limits)
    print(outcomes, 'Findings:', *tmp_path.glob('finding*'))
    assert not [outcome for outcome in outcomes if outcome.startswith('FINDING')]
    assert sum(outcomes.values()) >= 400
    assert outcomes['loaded'] > 30
    assert outcomes['BrokenCheckpointError'] > 200

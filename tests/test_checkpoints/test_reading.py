"""Data are read; code, damaged files and malicious files are refused."""

import collections
import io
import os
import zipfile
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.optim import OneCycleLR
from mmengine.optim.scheduler.param_scheduler import OneCycleParamScheduler
from test_checkpoints.layouts import Calls, saved, zipped

from mmbixt.checkpoints.errors import CheckpointFileError
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


def one_cycle(kind):
    """The state of a scheduler that names one of its functions."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    return OneCycleLR(optimizer, 0.1, total_steps=4, anneal_strategy=kind).state_dict()


DATA = {
    'numbers': [1, 2.5, True, None, 3 + 4j, 'text', b'bytes', b'', 2**80],
    'containers': [(1, 2), {3, 4}, frozenset({5}), {2: 1, 0.5: 2, None: 3, b'x': 5}],
    'named': [collections.OrderedDict(a=1), collections.Counter('aab')],
    'options': Namespace(lr=0.1, data=Namespace(path='x'), mean=np.ones(3, 'f2').tolist()),
    'numpy': (np.float32(1.5), [np.int64(7), {'a': np.bool_(1)}]),
    'schedulers': [one_cycle('cos'), one_cycle('linear')],
    'tensors': [torch.ones(2, dtype=x) for x in (torch.half, torch.bfloat16, torch.bool)],
}


@both_formats
@pytest.mark.parametrize('kind', DATA)
def test_data_are_read(read, kind, options):
    assert repr(read(saved(DATA[kind], **options))) == repr(DATA[kind])


def test_threads_that_read_leave_the_allowed_classes_as_they_were(tmp_path):
    torch.save(DATA['numpy'], tmp_path / 'x.pth')
    before = set(torch.serialization.get_safe_globals())
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(load, [str(tmp_path / 'x.pth')] * 40))
    assert set(torch.serialization.get_safe_globals()) == before


ARRAYS = [np.arange(6.0).reshape(2, 3), np.arange(3, dtype='>i4'), np.array([]), np.array(2.5)]
ARRAYS += [np.asfortranarray(np.eye(2, 3, dtype=bool)), np.ones((0, 3), 'c8')]


@both_formats
def test_arrays_are_read_and_saved_again_as_numpy_s(read, options):
    given = read(saved(ARRAYS, **options))
    again = torch.load(io.BytesIO(saved(given)), weights_only=False)
    for expected, array, same in zip(ARRAYS, given, again, strict=True):
        assert type(same) is np.ndarray
        assert same.dtype == expected.dtype.newbyteorder('=')
        assert same.tolist() == array.tolist() == expected.tolist()


@both_formats
def test_log_histories_are_mmengine_s(read, options):
    given = HistoryBuffer([1.0, 5.0], [1, 1])
    buffer = read(saved(given, **options))
    assert type(buffer) is HistoryBuffer
    buffer.update(6.0)
    assert (buffer.mean(), buffer.max(), buffer.max_length) == (4, 6, given.max_length)
    for array, expected in zip(read(saved(given)).data, given.data, strict=True):
        assert type(array) is np.ndarray
        assert (array.dtype, array.tolist()) == (expected.dtype, expected.tolist())


def test_checkpoint_of_numpy_1(read):
    with zipfile.ZipFile(io.BytesIO(saved([np.ones(3), np.float32(2)]))) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    pickled = records['archive/data.pkl'].replace(b'numpy._core.', b'numpy.core.')
    records['archive/data.pkl'] = pickled
    array, scalar = read(zipped(records, zipfile.ZIP_STORED))
    assert (array.sum(), scalar) == (3, 2)


ATTACKS = {
    'a shell command': (Calls(os.system, 'touch MARK'), 'posix.system'),
    'getattr of a module': (Calls(getattr, Calls(__import__, 'os'), 'system'), '__import__'),
    'getattr of an array': (Calls(getattr, np.ndarray, 'tofile'), "attribute 'tofile'"),
    'getattr of a log history': (Calls(getattr, HistoryBuffer, '__class__'), '__class__'),
    'objects in arrays': (np.array([{'a': 1}], dtype=object), "type 'O8'"),
}
OF_ANY_CODE = ('posix.system', '__import__')


@both_formats
@pytest.mark.parametrize('attack', ATTACKS)
def test_code_is_refused_and_not_run(read, tmp_path, monkeypatch, attack, options):
    payload, name = ATTACKS[attack]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointFileError, match=f'x.pth cannot be read: .*{name}') as caught:
        read(saved({'w': payload}, **options))
    assert len(str(caught.value)) < 600
    assert (f'set the environment variable {TRUST}=1' in str(caught.value)) == (name in OF_ANY_CODE)
    assert not (tmp_path / 'MARK').exists()


def test_trusted_files_are_read(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TRUST, '1')
    with pytest.warns(UserWarning, match=TRUST):
        read(saved({'w': Calls(os.system, 'touch MARK')}))
    assert (tmp_path / 'MARK').exists()


def array(shape, dtype):
    function, arguments, _ = np.ones(1).__reduce__()
    return Calls(function, *arguments, state=(1, shape, dtype, False, b'a' * 8))


def float8(order, size):
    return Calls(np.dtype, 'f8', False, True, state=(3, order, None, None, None, size, 1, 0))


def test_sizes_of_a_foreign_dtype_are_not_used(read):
    """They corrupted numpy's memory."""
    assert read(saved(array((1,), float8('|', 4096)))).itemsize == 8


MALICIOUS = {
    'a shape beyond the content': array((9,), np.dtype('f8')),
    'a text for a dtype': array((1,), 'O8'),
    'an array of pointers': Calls(np.ndarray, (1,), 'O8', 'A' * 8),
    'a text that is called': Calls(OneCycleParamScheduler),
    'an unknown byte order': float8('x', 8),
}


@pytest.mark.parametrize('kind', MALICIOUS)
def test_malicious_pickles_are_refused(read, kind):
    with pytest.raises(CheckpointFileError, match=r'x\.pth cannot be read: '):
        read(saved(MALICIOUS[kind]))


def test_histories_that_are_not_arrays_are_refused(read):
    """numpy would read the address that a foreign ``__array_interface__`` names."""
    options = Namespace()
    options.__array_interface__ = dict(version=3, shape=(4,), typestr='<i8', data=(4096, True))
    history = HistoryBuffer([1.0], [1])
    history._log_history = [options]
    with pytest.raises(CheckpointFileError, match='an unexpected state of a log history'):
        read(saved(history))


def test_damaged_files_are_named(read):
    value = {'w': torch.randn(9), 'a': np.ones(3), 's': {1}}
    cut = [content[:-9] for content in (saved(value), saved(value, **LEGACY))]
    for content in (*cut, b'', b'not a checkpoint', b'\x80\x02garbage', b'PK\x03\x04broken'):
        with pytest.raises(CheckpointFileError, match=r'x\.pth cannot be read: ') as caught:
            read(content)
        assert TRUST not in str(caught.value)

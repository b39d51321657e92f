import argparse
import collections
import os
import pickle
import subprocess
import tarfile

import numpy as np
import pytest
import torch

from mmbixt.checkpoints.loader import TRUST, CheckpointFileError, load_from_local
from mmbixt.checkpoints.unpickler import UnsafeCheckpointError

HARMLESS = {
    'numbers': [1, 2.5, True, None, 3 + 4j, 'text', b'bytes', 2**80],
    'containers': [
        (1, 2),
        {3, 4},
        frozenset({5}),
        collections.OrderedDict(a=1),
        collections.Counter('aab'),
        collections.deque([1, 2], maxlen=3),
        bytearray(b'x'),
        slice(1, 2),
        range(3),
    ],
    'namespace': argparse.Namespace(lr=0.1, data=argparse.Namespace(path='x')),
    'numpy': [
        np.arange(6.0).reshape(2, 3),
        np.float32(1.5),
        np.int64(7),
        np.dtype('f4'),
        np.bool_(1),
    ],
    'empty': [b'', np.array([]), np.empty((0, 3), np.int64), np.array(2.5)],
    'torch': [torch.Size((1, 2)), torch.float16, torch.device('cpu')],
}


def save(path, value, **options):
    torch.save(value, path, **options)
    return path


@pytest.mark.parametrize('zipped', [True, False], ids=['zip', 'legacy format'])
@pytest.mark.parametrize('kind', HARMLESS)
def test_data_are_read_as_they_were(tmp_path, kind, zipped):
    path = save(tmp_path / 'x.pth', HARMLESS[kind], _use_new_zipfile_serialization=zipped)
    loaded = load_from_local(str(path))
    assert repr(loaded) == repr(HARMLESS[kind])


@pytest.mark.parametrize('zipped', [True, False], ids=['zip', 'legacy format'])
@pytest.mark.parametrize(
    'dtype', [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
def test_tensors(tmp_path, dtype, zipped):
    base = torch.randn(4, 6).to(dtype)
    value = {'view': base[1:, ::2], 'whole': base, 'weight': torch.nn.Parameter(torch.randn(2))}
    path = save(tmp_path / 'x.pth', value, _use_new_zipfile_serialization=zipped)
    loaded = load_from_local(str(path), map_location='cpu')
    for key, tensor in value.items():
        assert torch.equal(loaded[key], tensor)
        assert type(loaded[key]) is type(tensor)
    assert (
        loaded['view'].untyped_storage().data_ptr() == loaded['whole'].untyped_storage().data_ptr()
    )


def test_state_dict_keeps_its_versions_and_optimizers_their_state(tmp_path):
    module = torch.nn.BatchNorm2d(4)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.randn(2, 4, 3, 3)).sum().backward()
    optimizer.step()
    value = {'state_dict': module.state_dict(), 'optimizer': optimizer.state_dict()}
    loaded = load_from_local(str(save(tmp_path / 'x.pth', value)))
    assert loaded['state_dict']._metadata == module.state_dict()._metadata
    torch.optim.AdamW(module.parameters()).load_state_dict(loaded['optimizer'])


def test_history_buffer_of_mmengine(tmp_path):
    from mmengine.logging import HistoryBuffer

    buffer = HistoryBuffer([1.0, 2.0, 6.0], [1, 1, 2], max_length=10)
    loaded = load_from_local(str(save(tmp_path / 'x.pth', {'loss': buffer})))['loss']
    assert type(loaded) is HistoryBuffer
    assert loaded.mean() == buffer.mean()
    assert loaded.max_length == 10
    loaded.update(3.0)
    assert loaded.current() == 3.0


def test_empty_history_buffer(tmp_path):
    from mmengine.logging import HistoryBuffer

    loaded = load_from_local(str(save(tmp_path / 'x.pth', HistoryBuffer())))
    loaded.update(3.0)
    assert loaded.mean() == 3.0


class Calls:
    """Pickles as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def set_state(target, state):
    """A pickle that sets the state of any global: what reduce values may ask for."""
    module, name = target
    return b''.join(
        [
            pickle.PROTO + b'\x02',
            pickle.GLOBAL + f'{module}\n{name}\n'.encode(),
            pickle.dumps(state, 2)[2:-1],
            pickle.BUILD,
            pickle.STOP,
        ]
    )


ATTACKS = {
    'a shell command': (Calls(os.system, 'touch MARK'), 'posix.system'),
    'a subprocess': (Calls(subprocess.call, ['touch', 'MARK']), 'subprocess.call'),
    'eval': (Calls(eval, "open('MARK', 'w')"), 'builtins.eval'),
    'getattr of a module': (
        Calls(getattr, Calls(__import__, 'os'), 'system'),
        'builtins.__import__',
    ),
    'getattr of a class': (Calls(getattr, np.ndarray, 'tofile'), "attribute 'tofile'"),
    'torch.load again': (
        Calls(torch.storage._load_from_bytes, b'x'),
        'torch.storage._load_from_bytes',
    ),
    'an unknown class': (Calls(__import__, 'antigravity'), 'builtins.__import__'),
}


@pytest.mark.parametrize('zipped', [True, False], ids=['zip', 'legacy format'])
@pytest.mark.parametrize('attack', ATTACKS)
def test_code_is_refused_by_name_and_not_run(tmp_path, monkeypatch, attack, zipped):
    payload, name = ATTACKS[attack]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(TRUST, raising=False)
    path = save(tmp_path / 'x.pth', {'w': payload}, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UnsafeCheckpointError, match=name) as caught:
        load_from_local(str(path))
    assert TRUST in str(caught.value)
    assert '--trust-checkpoint' in str(caught.value)
    assert str(path) in str(caught.value)
    assert not (tmp_path / 'MARK').exists()


def test_explicit_trust_runs_it(tmp_path, monkeypatch):
    monkeypatch.setenv(TRUST, '1')
    path = save(tmp_path / 'x.pth', Calls(eval, "'executed'"))
    assert load_from_local(str(path)) == 'executed'


@pytest.mark.parametrize(
    'target',
    [
        ('collections', 'OrderedDict'),
        ('torch._utils', '_rebuild_tensor_v2'),
        ('builtins', 'getattr'),
    ],
)
def test_the_state_of_functions_and_classes_cannot_be_set(target):
    from mmbixt.checkpoints.unpickler import SafePickle

    class File:
        def __init__(self, data):
            import io

            stream = io.BytesIO(data)
            self.read, self.readline, self.readinto = stream.read, stream.readline, stream.readinto

    with pytest.raises(UnsafeCheckpointError, match='a state for'):
        SafePickle.load(File(set_state(target, {'__doc__': 'changed'})))


def test_arrays_of_objects_are_refused(tmp_path):
    path = save(tmp_path / 'x.pth', np.array([{'a': 1}], dtype=object))
    with pytest.raises(UnsafeCheckpointError, match='objects'):
        load_from_local(str(path))


def test_missing_file():
    with pytest.raises(FileNotFoundError, match=r'no checkpoint file at nowhere\.pth'):
        load_from_local('nowhere.pth')


@pytest.mark.parametrize(
    'content', [b'', b'not a checkpoint', b'\x80\x02garbage', b'PK\x03\x04broken']
)
def test_what_is_no_checkpoint_is_called_so(tmp_path, content):
    path = tmp_path / 'x.pth'
    path.write_bytes(content)
    with pytest.raises(CheckpointFileError, match='cannot be read as a checkpoint'):
        load_from_local(str(path))


def test_truncated_file(tmp_path):
    path = save(tmp_path / 'x.pth', {'w': torch.randn(100, 100)})
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(CheckpointFileError, match='20000 bytes'):
        load_from_local(str(path))


def test_numpys_constructor_cannot_be_called(tmp_path):
    """It would take any bytes for pointers to objects."""
    pointers = Calls(np.ndarray, (1,), 'O', b'A' * 8)
    path = save(tmp_path / 'x.pth', {'w': Calls(set, pointers)})
    with pytest.raises((UnsafeCheckpointError, CheckpointFileError)):
        load_from_local(str(path))


class Script(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize('padding', [0, 100, 70_000])
def test_torchscript_is_refused(tmp_path, padding):
    """Also with bytes behind it, which hide the archive from Python's zipfile, not from torch."""
    path = tmp_path / 'x.pth'
    torch.jit.script(Script()).save(str(path))
    path.write_bytes(path.read_bytes() + bytes(padding))
    with pytest.raises((UnsafeCheckpointError, CheckpointFileError)):
        load_from_local(str(path))


def test_tar_archive_is_refused_and_not_unpacked(tmp_path, monkeypatch):
    """torch would unpack it, and a link in it reaches files anywhere."""
    victim = tmp_path / 'victim'
    victim.write_text('mine')
    victim.chmod(0o600)
    path = tmp_path / 'x.pth'
    with tarfile.open(path, 'w') as archive:
        link = tarfile.TarInfo('storages')
        link.type, link.linkname, link.mode = tarfile.LNKTYPE, str(victim), 0o777
        archive.addfile(link)
    with pytest.raises(UnsafeCheckpointError, match='tar archive'):
        load_from_local(str(path))
    assert victim.stat().st_mode & 0o777 == 0o600


def test_impossible_size_is_an_error_of_the_file(tmp_path):
    path = save(tmp_path / 'x.pth', Calls(bytearray, 1 << 60))
    with pytest.raises(CheckpointFileError, match=r'MemoryError|OverflowError'):
        load_from_local(str(path))

"""Fuzz the reader of checkpoints with damaged files, in a process that may crash.

    make fuzz SECONDS=600

Bytes of saved files, opcodes of their pickles or records of their archives are changed at random.
Loading such a file, or a declared error that names it, is correct; a signal, another error, an
endless loop, or too much memory is a finding, whose file is kept. The same seed gives the same
files. Known attacks are in test_unpickler.py.
"""

import collections
import ctypes
import io
import itertools
import multiprocessing
import pickle
import pickletools
import random
import resource
import signal
import struct
import time
import warnings
import zipfile
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from mmengine.logging import HistoryBuffer
from mmengine.optim import OneCycleLR

from mmbixt.checkpoints.calls import CALLS, CLASSES, ONE_CYCLE
from mmbixt.checkpoints.errors import CheckpointFileError, UnsafeCheckpointError
from mmbixt.checkpoints.loader import read_file

SECONDS_PER_FILE = 10
MEMORY = 1 << 30  # bytes that a worker may allocate after its imports
LONGEST = 2  # seconds of CPU time for a file; usual are milliseconds


def data():
    """Content of checkpoints except training states; its ``repr`` is the same after loading."""
    return {
        'numbers': [1, 2.5, True, None, 3 + 4j, 'text', b'bytes', 2**80],
        'containers': [(1, 2), {3, 4}, frozenset({5}), {2: 1, 0.5: 2, None: 3, b'x': 5}],
        'named': [collections.OrderedDict(a=1), collections.Counter('aab')],
        'namespace': Namespace(lr=0.1, data=Namespace(path='x'), mean=np.ones(3, 'f2')),
        'arrays': [np.arange(6.0).reshape(2, 3), np.arange(3, dtype='>i4')],
        'columns first': np.asfortranarray(np.ones((2, 3), bool)),
        'in containers': (np.float32(1.5), [np.int64(7), {'a': np.bool_(1)}], (np.ones(2, 'c8'),)),
        'empty': [b'', np.array([]), np.empty((0, 3), np.int64), np.array(2.5), np.dtype('f4')],
        'torch': [torch.Size((1, 2)), torch.float16, torch.device('cpu')],
        'tensors': [torch.ones(3).to(getattr(torch, t)) for t in ('half', 'bfloat16', 'int64')],
        'other tensors': [torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.cfloat)],
        'expanded': torch.ones(1, 1, 64, 1).expand(1, 1, 64, 1 << 18),
        'schedulers that name their functions': [one_cycle('cos'), one_cycle('linear')],
    }


def one_cycle(strategy):
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
    return OneCycleLR(optimizer, 1.0, total_steps=9, anneal_strategy=strategy).state_dict()


def training_states():
    base = torch.randn(6, 8)
    layer = torch.nn.BatchNorm2d(3)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.randn(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    history = HistoryBuffer([1.0, 2.0, 6.0], [1, 1, 2], max_length=10)
    return [
        {'state_dict': layer.state_dict(), 'optimizer': optimizer.state_dict()},
        {'message_hub': dict(log_scalars=collections.OrderedDict(loss=history)), 'meta': {'a': 1}},
        {'view': base[1:, ::2], 'base': base, 'p': torch.nn.Parameter(torch.ones(2)), 'x': {1, 2}},
    ]


def take_apart(value, legacy):
    """A checkpoint as [name, content] of its pickles and storages."""
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=not legacy)
    if not legacy:
        with zipfile.ZipFile(file) as archive:
            return [[info.filename, archive.read(info)] for info in archive.infolist()]
    parts, content = [], file.getvalue()
    file.seek(0)
    for _ in range(5):
        start = file.tell()
        collections.deque(pickletools.genops(file), 0)
        parts.append(['.pkl', content[start : file.tell()]])
    return [*parts, ['storages', file.read()]]


def put_together(parts, legacy):
    if legacy:
        return b''.join(content for _, content in parts)
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, 'w') as archive:
        warnings.simplefilter('ignore')  # of records of the same name
        for name, content in parts:
            archive.writestr(name, content)
    return file.getvalue()


NAMES = [
    *('posix.system', 'builtins.eval', 'builtins.bytearray', 'builtins.range', 'numpy.ndarray'),
    *('torch.FloatStorage', 'torch.DoubleStorage', 'torch.storage.UntypedStorage', 'torch.Tensor'),
    *('torch._utils._rebuild_sparse_tensor', 'torch._utils._rebuild_meta_tensor_no_storage'),
    *('torch._utils._rebuild_wrapper_subclass', 'torch._tensor._rebuild_from_type_v2'),
    *('torch._utils._rebuild_tensor_v3', 'torch.float32', ONE_CYCLE, *CALLS, *CLASSES),
]
INTEGERS = [0, 1, 2, 3, 7, 8, 255, -1, 1 << 15, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1]
TEXTS = ['', '0', 'cpu', 'meta', 'cuda:0', 'storage', 'O8', 'U2', 'f8', 'i1', 'V0', '<', 'latin1']
OTHERS = [
    b'(',
    b')',
    b']',
    b'}',
    b't',
    b'e',
    b'u',
    b'\x85R',
    b'\x86R',
    b')R',
    b'tR',
    b')\x81',
    b'b',
    b'Q',
]
OTHERS += [b'q\xc8h\xc8\x86', b']q\xc8(h\xc8h\xc8e']  # pairs and lists that double


def integer(number):
    return pickle.LONG1 + bytes([len(encoded := pickle.encode_long(number))]) + encoded


def text(string):
    return pickle.BINUNICODE + struct.pack('<I', len(string.encode())) + string.encode()


OPCODES = {  # in a file, and the random ones that replace them
    b'c': lambda rng: 'c{}\n{}\n'.format(*rng.choice(NAMES).rsplit('.', 1)).encode(),
    b'KMJ\x8a': lambda rng: integer(rng.choice(INTEGERS)),
    b'X': lambda rng: text(rng.choice(TEXTS)),
    b'hq': lambda rng: rng.choice([b'h', b'q']) + bytes([rng.randrange(60)]),
    b'': lambda rng: rng.choice(OTHERS),
}


def attack(rng):
    """Opcodes, perhaps many times."""
    makers = rng.choices([*OPCODES.values()], k=rng.randrange(1, 8))
    return b''.join(make(rng) for make in makers) * rng.choice([1, 1, 1, 30, 2000])


def change_pickle(rng, content):
    positions = [position for _, _, position in pickletools.genops(content)] + [len(content)]
    parts = [content[a:b] for a, b in itertools.pairwise(positions)]  # opcodes, with arguments
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at, start = (rng.randrange(1, len(parts)) for _ in range(2))
        codes, way = rng.choice([*OPCODES]), rng.randrange(5)
        places = [i for i, part in enumerate(parts) if part[:1] in codes] or [at]
        if way == 0:
            parts.insert(at, attack(rng))
        elif way == 1:  # insert, replace or remove opcodes
            count = rng.choice([0, 1, 4, 19])
            parts[at : at + rng.choice([0, 1])] = parts[start : start + count] or [b'N']
        else:
            parts[rng.choice(places)] = OPCODES[codes](rng)
    return b''.join(parts)


def change_bytes(rng, content):
    """Replace, insert or remove bytes."""
    for _ in range(rng.choice([1, 1, 3, 10])):
        at, start = (rng.randrange(len(content) + 1) for _ in range(2))
        piece = rng.choice([b'', bytes([rng.randrange(256)]), content[start : start + 40]])
        content = content[:at] + piece + content[at + rng.choice([0, 1, 1, 40, 1 << 30]) :]
    return content


def make(rng, saved):
    """A damaged file."""
    value, legacy = rng.choice(saved)
    parts = take_apart(value, legacy)
    pickles = [part for part in parts if part[0].endswith('.pkl')]
    way = rng.randrange(10)
    if way < 6:
        part = rng.choice([pickles[-2:][0], *pickles])  # the fourth of a legacy file has the data
        part[1] = change_pickle(rng, part[1])
    if way in (5, 6):
        part = rng.choice(parts)
        part[1] = change_bytes(rng, part[1])
    if way in (5, 7):  # remove or rename a record, perhaps to an existing name
        part = parts.pop(rng.randrange(len(parts)))
        other = rng.choice([*(name for name, _ in parts), 'x', 'archive/constants.pkl'])
        parts += [[other, part[1]]] * rng.choice([0, 1])
    content = put_together(parts, legacy)
    return change_bytes(rng, content) if way >= 8 else content


def check(path):
    """Load a file; returns 'loaded', the name of the error, or a finding."""
    start = time.process_time()
    outcome = 'loaded'
    try:
        value = read_file(str(path), 'cpu')
    except (CheckpointFileError, UnsafeCheckpointError) as error:
        outcome = type(error).__name__
        if isinstance(error.__cause__, MemoryError) or 'allocat' in str(error):
            return 'FINDING: memory'
        if str(path) not in str(error) or len(str(error)) > 2000:
            return f'FINDING: a bad message: {str(error)[:200]}'
    except BaseException as error:
        return f'FINDING: {type(error).__name__}'
    if time.process_time() - start > LONGEST:
        return 'FINDING: slow'
    if outcome == 'loaded':
        try:  # read all of it, as a training run that saves it again
            torch.save(value, io.BytesIO())
            torch.save(value, io.BytesIO(), _use_new_zipfile_serialization=False)
        except Exception as error:
            return f'FINDING: loaded, but {type(error).__name__}: {str(error)[:100]}'
    return outcome


def work(log, seed, numbers, end, folder):
    """Make and check files; write the outcome of each into a log."""
    warnings.simplefilter('ignore')
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    ctypes.CDLL(None).mallopt(-6, 165)  # M_PERTURB: overwrite freed memory, to reveal its use
    torch.set_num_threads(1)  # torch's threads do not survive a fork
    torch.manual_seed(0)
    values = [*training_states(), *data().values()]
    saved = [(value, legacy) for value in values for legacy in (False, True)]
    path = folder / 'right.pth'
    for value, legacy in saved:  # undamaged files load; imports happen before the memory limit
        path.write_bytes(put_together(take_apart(value, legacy), legacy))
        assert check(path) == 'loaded', check(path)
    used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    with log.open('a') as outcomes:
        for number in itertools.takewhile(lambda _: time.monotonic() < end, numbers):
            path = folder / f'finding-{seed}-{number}.pth'  # removed if there is no finding
            path.write_bytes(make(random.Random(f'{seed}-{number}'), saved))
            signal.alarm(SECONDS_PER_FILE)  # ends the process
            outcome = check(path)
            signal.alarm(0)
            if not outcome.startswith('FINDING'):
                path.unlink()
            print(outcome, file=outcomes, flush=True)


def run(folder, seconds=1e9, count=10**12, seed=0):
    """Fuzz for a time or a number of files; returns counts of outcomes. Findings are kept."""
    log, end, outcomes = folder / 'outcomes', time.monotonic() + seconds, []
    while len(outcomes) < count and time.monotonic() < end:
        options = log, seed, range(len(outcomes), count), end, folder
        worker = multiprocessing.get_context('fork').Process(target=work, args=options)
        worker.start()
        worker.join()
        if worker.exitcode:  # while it read the next file
            with log.open('a') as file:
                print(f'FINDING: the process ended with {worker.exitcode}', file=file)
        outcomes = log.read_text().splitlines()
    return collections.Counter(outcomes)

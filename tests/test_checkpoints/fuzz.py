"""Checkpoints damaged in every way that we could think of, read in a process that may die of it.

    make fuzz SECONDS=600

Each file starts as one that ``torch.save`` wrote. Then its bytes, the opcodes and arguments of its
pickles, its storages or the records of its archive are changed. It may be loaded or refused with a
declared error that names it; a signal, another error, a loop, or much memory is a finding, whose
file is kept. The same seed gives the same files.
"""

import argparse
import collections
import io
import itertools
import os
import pickle
import pickletools
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

SECONDS_PER_FILE = 10
MEMORY = 1 << 30  # bytes that a worker may take beyond what it has after its imports
PAUSE = 0.5  # seconds of the processor; a file of these sizes takes milliseconds


def data():
    """What checkpoints hold, but for training states; it comes back with the same ``repr``."""
    import numpy as np
    import torch

    namespace = argparse.Namespace
    return {
        'numbers': [1, 2.5, True, None, 3 + 4j, 'text', b'bytes', 2**80],
        'containers': [(1, 2), {3, 4}, frozenset({5}), bytearray(b'x'), bytearray()],
        'named': [collections.OrderedDict(a=1), collections.Counter('aab')],
        'namespace': namespace(lr=0.1, data=namespace(path='x'), mean=np.ones(3, 'f2')),
        'arrays': [
            np.arange(6.0).reshape(2, 3),
            np.asfortranarray(np.ones((2, 3), bool)),
            np.arange(3, dtype='>i4'),
        ],
        'in containers': (np.float32(1.5), [np.int64(7), {'a': np.bool_(1)}], (np.ones(2, 'c8'),)),
        'empty': [b'', np.array([]), np.empty((0, 3), np.int64), np.array(2.5), np.dtype('f4')],
        'torch': [torch.Size((1, 2)), torch.float16, torch.device('cpu'), torch.ones(3).half()],
        'keys': {2**70: 1, (1, ('a', 2.0)): 2, torch.Size((1,)): 3, torch.half: 4, b'x': 5, 6j: 6},
        'flags': torch.ones(2, dtype=torch.complex64).conj().imag,
        'expanded': torch.ones(1, 1, 64, 1).expand(1, 1, 64, 1 << 18),
    }


def training_states():
    import torch
    from mmengine.logging import HistoryBuffer
    from mmengine.optim import OneCycleLR

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
        {'one cycle': OneCycleLR(optimizer, eta_max=0.1, total_steps=9).state_dict()},
    ]


class Archive:
    """A checkpoint in its parts: pickles and storages."""

    def __init__(self, value, legacy):
        import torch

        buffer = io.BytesIO()
        torch.save(value, buffer, _use_new_zipfile_serialization=not legacy)
        self.legacy = legacy
        self.changes = {}  # of the archive's records: name -> what to do
        if legacy:
            buffer.seek(0)
            self.pickles = [self.next_pickle(buffer) for _ in range(5)]
            self.rest = buffer.read()
        else:
            with zipfile.ZipFile(buffer) as opened:
                self.records = {i.filename: opened.read(i) for i in opened.infolist()}
            self.name = next(name for name in self.records if name.endswith('/data.pkl'))
            self.pickles = [self.records[self.name]]

    @staticmethod
    def next_pickle(file):
        start = file.tell()
        collections.deque(pickletools.genops(file), 0)
        end = file.tell()
        file.seek(start)
        return file.read(end - start)

    def content(self, rng):
        if self.legacy:
            return b''.join(self.pickles) + self.rest
        self.records[self.name] = self.pickles[0]
        buffer = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(buffer, 'w') as opened:
            warnings.simplefilter('ignore')
            for name, content in self.records.items():
                opened.writestr(self.changes.get(name, name), content)
                if rng.random() < 0.01:
                    opened.writestr(name, content[: rng.randrange(len(content) + 1)])
        return buffer.getvalue()


def split(content):
    """The opcodes of a pickle with their arguments, each as its bytes."""
    positions = [position for _, _, position in pickletools.genops(content)] + [len(content)]
    return [content[a:b] for a, b in itertools.pairwise(positions)]


NAMES = [
    *('posix system', 'builtins eval', 'builtins bytearray', 'builtins getattr', 'builtins set'),
    *('builtins range', '_codecs encode', 'collections OrderedDict', 'collections Counter'),
    *('numpy dtype', 'numpy ndarray', 'numpy._core.multiarray _reconstruct', 'torch float32'),
    *('numpy.core.multiarray scalar', 'argparse Namespace', 'torch Size', 'torch device'),
    *('torch._utils _rebuild_tensor_v2', 'torch._utils _rebuild_parameter', 'torch FloatStorage'),
    *('torch._utils _rebuild_tensor_v3', 'torch._utils _rebuild_sparse_tensor', 'torch Tensor'),
    *('torch._utils _rebuild_meta_tensor_no_storage', 'torch.storage UntypedStorage'),
    *('torch._utils _rebuild_wrapper_subclass', 'torch._tensor _rebuild_from_type_v2'),
    *('mmengine.logging.history_buffer HistoryBuffer', 'builtins frozenset', 'torch DoubleStorage'),
    'mmengine.optim.scheduler.param_scheduler OneCycleParamScheduler',
]
INTEGERS = [0, 1, 2, 3, 7, 8, 255, -1, 1 << 15, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1]
TEXTS = ['', '0', 'cpu', 'meta', 'cuda:0', 'storage', 'O8', 'U2', 'f8', 'i1', 'V0', '<', 'latin1']


def integer(number):
    return pickle.LONG1 + bytes([len(encoded := pickle.encode_long(number))]) + encoded


def text(string):
    encoded = string.encode()
    return pickle.BINUNICODE + struct.pack('<I', len(encoded)) + encoded


def name(rng):
    return b'c' + rng.choice(NAMES).replace(' ', '\n').encode() + b'\n'


def attack(rng):
    """What somebody who knows pickles would put in."""
    deep = rng.choice([10, 30, 100, 2000])
    dtype_state = b'(K\x03' + text('|') + b'NNN' + integer(rng.choice(INTEGERS))
    dtype_state += integer(rng.choice(INTEGERS)) + b'K\x00tb'
    call = rng.choice([b'R', b'\x81', b'b'])
    return rng.choice(
        [
            b')' + b'q\xc8h\xc8\x86' * deep,  # pairs of themselves
            b']q\xc8' + b']q\xc9(h\xc8h\xc8eh\xc9q\xc8' * deep,  # lists of themselves
            b'}(' + b')' + b'q\xc8h\xc8\x86' * deep + b'K\x01u',
            bytes([ord('h'), rng.randrange(40)]) + dtype_state,  # the published attack
            bytes([ord('h'), rng.randrange(40)]) + b'}b',
            b'cbuiltins\nbytearray\n' + integer(1 << 40) + b'\x85R',
            b'cbuiltins\nset\ncbuiltins\nrange\n' + integer(1 << 40) + b'\x85R\x85R',
            b'c_codecs\nencode\n' * deep + text('aa') + (text('hex') + b'\x86R') * deep,
            name(rng) + b''.join(rng.choice([integer(rng.choice(INTEGERS)), text(rng.choice(TEXTS)),
                     b')', b']', b'}', name(rng)]) for _ in range(2)) + b'\x86' + call,
            b'h' + bytes([rng.randrange(40)]) + b'h' + bytes([rng.randrange(40)]) + b'\x85' + call,
            b'(' + text('storage') + b'ctorch\nFloatStorage\n' + text('0') + text('cpu')
            + integer(rng.choice(INTEGERS)) + rng.choice([b'', b'N', b'(K\x01K\x00K\x04t']) + b'tQ',
            b'(' * deep, b't' * deep, b']' * deep,
            b'U\x02\xc3\xa9',
            b'(K\x01' + rng.choice([text('a'), b')', b'(NNt']) + b'h\x01\x89h\x02tb',
        ]
    )  # fmt: skip


def change_pickle(rng, content, other):
    parts = split(content)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(1, len(parts))
        way = rng.randrange(8)
        code = parts[at][:1]
        if way == 0 and len(parts) > 2:
            del parts[at]
        elif way == 1:
            other_place = rng.randrange(len(parts))
            parts[at], parts[other_place] = parts[other_place], parts[at]
        elif way in (2, 3):
            source = split(rng.choice([content, other]))
            start = rng.randrange(len(source))
            parts[at:at] = source[start : start + rng.choice([1, 1, 4, 19])]
        elif way == 4:
            parts.insert(at, attack(rng))
        elif code == b'c' or way == 5:  # another name
            globals_ = [i for i, part in enumerate(parts) if part[:1] == b'c']
            parts[rng.choice([*globals_, at])] = name(rng)
        elif code in b'KMJ\x8a':
            parts[at] = integer(rng.choice(INTEGERS))
        elif code == b'X':
            parts[at] = text(rng.choice(TEXTS))
        elif code in b'hq':
            parts[at] = code + bytes([rng.randrange(60)])
        else:
            parts[at] = bytes([rng.randrange(256)]) + parts[at][1:]
    return b''.join(parts)


def change_bytes(rng, content):
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 3, 10])):
        at, start, count = (rng.randrange(n) for n in (len(content) + 1, len(content) + 1, 40))
        way = rng.randrange(5)
        if way == 0:
            content[at : at + 1] = bytes([rng.randrange(256)])
        elif way == 1:
            content[at : at + 1] = bytes(
                byte ^ 1 << rng.randrange(8) for byte in content[at : at + 1]
            )
        elif way == 2:
            del content[at:]
        elif way == 3:
            del content[at : at + count]
        else:
            content[at:at] = content[start : start + count]
    return bytes(content)


def change_records(rng, archive):
    if archive.legacy:
        archive.rest = change_bytes(rng, archive.rest)
        return
    record = rng.choice(list(archive.records))
    way = rng.randrange(4)
    if way == 0:
        del archive.records[record]
    elif way == 1:
        archive.changes[record] = rng.choice([*archive.records, 'x', 'archive/constants.pkl'])
    elif way == 2:
        archive.records[record] = archive.records[record][: rng.randrange(40)]
    else:
        archive.records[record] += bytes(rng.randrange(40))
    archive.records.setdefault(archive.name, archive.pickles[0])


def make(rng, saved):
    """A damaged file."""
    value, legacy = rng.choice(saved)
    archive = Archive(value, legacy)
    way = rng.randrange(10)
    if way < 6:
        index = min(rng.choice([3, 3, 3, 4, 0, 1, 2]), len(archive.pickles) - 1)
        other = Archive(*rng.choice(saved)).pickles[-2:][0]
        archive.pickles[index] = change_pickle(rng, archive.pickles[index], other)
    if way in (5, 6, 7):
        change_records(rng, archive)
    content = archive.content(rng)
    return change_bytes(rng, content) if way >= 8 else content


def touch(value):
    """Read all that was loaded, and write it again, as a training run would."""
    import torch

    torch.save(value, io.BytesIO())
    torch.save(value, io.BytesIO(), _use_new_zipfile_serialization=False)


def memory():
    return int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()


def check(path):
    """Load a file; what happened, in a word, or the finding."""
    from mmbixt.checkpoints.errors import CheckpointFileError, UnsafeCheckpointError
    from mmbixt.checkpoints.loader import read_file

    start = time.process_time()
    outcome = 'loaded'
    try:
        value = read_file(str(path), 'cpu')
    except (CheckpointFileError, UnsafeCheckpointError) as error:
        outcome = type(error).__name__
        cause = error.__cause__
        if isinstance(cause, MemoryError) or 'allocat' in str(error):
            return f'FINDING: memory: {error}'
        if str(path) not in str(error) or len(str(error)) > 2000:
            return f'FINDING: a bad message: {str(error)[:200]}'
        if outcome == 'CheckpointFileError':
            outcome = f'only torch can tell: {type(cause).__name__}: {str(cause)[:28]}'
    except BaseException as error:
        return f'FINDING: {type(error).__name__}'
    if time.process_time() - start > PAUSE:
        return 'FINDING: slow'
    if outcome == 'loaded':
        try:
            touch(value)
        except Exception as error:
            return f'FINDING: loaded, but {type(error).__name__}: {str(error)[:100]}'
    return outcome.partition('\n')[0]


def work(seed, start, stop, seconds, folder):
    """Make and check files; say on stdout which one is next, and how the last one ended."""
    import torch

    import mmbixt.checkpoints.loader  # noqa: F401

    warnings.simplefilter('ignore')
    torch.manual_seed(0)
    values = [*training_states(), *data().values()]
    saved = [(value, legacy) for value in values for legacy in (False, True)]
    path = folder / f'{os.getpid()}.pth'
    for value in saved:  # so that all is imported, and works
        path.write_bytes(Archive(*value).content(random.Random(0)))
        assert check(path) == 'loaded', check(path)
    resource.setrlimit(resource.RLIMIT_AS, (memory() + MEMORY,) * 2)
    end = time.monotonic() + seconds
    for number in range(start, stop):
        if time.monotonic() > end:
            break
        path.write_bytes(make(random.Random(f'{seed}-{number}'), saved))
        print(f'{number} next', flush=True)
        signal.alarm(SECONDS_PER_FILE)  # which ends the process
        outcome = check(path)
        signal.alarm(0)
        if outcome.startswith('FINDING'):
            path.rename(folder / f'finding-{seed}-{number}.pth')
        print(f'{number} {outcome}', flush=True)
    path.unlink(missing_ok=True)


def run(folder, seconds=1e9, count=10**12, seed=0):
    """Fuzz for a time or a number of files.

    Returns:
        How many files ended how, and the findings.
    """
    outcomes, findings, number = collections.Counter(), [], 0
    end = time.monotonic() + seconds
    environment = {**os.environ, 'MALLOC_PERTURB_': '165'}  # memory that is freed changes
    while number < count and (left := end - time.monotonic()) > 0:
        work = map(str, (seed, number, count, left, folder))
        command = [sys.executable, __file__, '--worker', *work]
        outcome = ''
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as worker:
            for line in worker.stdout:
                index, _, outcome = line.strip().partition(' ')
                number = int(index)
                if outcome != 'next':
                    outcomes[outcome] += 1
                    number += 1
                if outcome.startswith('FINDING'):
                    findings.append(f'{seed}-{index}: {outcome}')
        if outcome == 'next':
            findings.append(f'{seed}-{number}: the process ended with {worker.returncode}')
            Path(folder, f'{worker.pid}.pth').rename(Path(folder, f'finding-{seed}-{number}.pth'))
            number += 1
        elif worker.returncode:
            raise RuntimeError(f'The worker ended with {worker.returncode} between two files')
    return outcomes, findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--seed', type=int, default=int(time.time()))
    parser.add_argument('--folder', default='work_dirs/fuzz', help='where findings are kept')
    parser.add_argument('--worker', nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        seed, start, stop, seconds, folder = args.worker
        return work(int(seed), int(start), int(stop), float(seconds), Path(folder))
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    outcomes, findings = run(args.folder, args.seconds, seed=args.seed)
    for outcome, times in outcomes.most_common(30):
        print(f'{times:>8} {outcome!r}')
    print(f'{sum(outcomes.values())} files, seed {args.seed}, {len(findings)} findings', *findings)
    sys.exit(bool(findings))


if __name__ == '__main__':
    main()

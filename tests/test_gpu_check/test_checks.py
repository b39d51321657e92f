"""What a GPU will be asked, on a processor: the same cases and the same order of operations."""

import json
import os
import sys
import time
from contextlib import nullcontext
from multiprocessing import get_context
from unittest.mock import MagicMock

import pytest
import torch
from helpers import only_in_zoo, others_in_zoo, python
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmbixt.gpu_check import __main__ as command
from mmbixt.gpu_check import lines, parity, process
from mmbixt.gpu_check.cases import LAYERS, OPS
from mmbixt.gpu_check.lines import FIRST, Line, not_run, result_of
from mmbixt.gpu_check.models import measure
from mmbixt.ops import dispatch, ops_path

CASES = OPS | LAYERS
NAMES = others_in_zoo(CASES, {*FIRST, *LAYERS})
PRECISIONS = {precision.name: precision for precision in parity.PRECISIONS}
SOME = ['xca: twice as many tokens as channels', 'RoutingAttention, padding', 'WindowAttention']


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'none')
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernel for processors has no gradient for a bias
        yield


@pytest.mark.usefixtures('as_on_a_gpu')
@pytest.mark.parametrize('precision', others_in_zoo(PRECISIONS, [p.name for p in lines.FEW]))
@pytest.mark.parametrize('name', NAMES)
def test_parity(name, precision):
    found = parity.check(CASES[name], 'cpu', 'eager', PRECISIONS[precision])
    assert found['status'] == 'ok', found


@only_in_zoo
@pytest.mark.usefixtures('as_on_a_gpu', 'fresh_compiler')
@pytest.mark.parametrize('name', CASES)
def test_parity_compiled(name, monkeypatch):
    monkeypatch.setattr(parity, 'BACKEND', 'aot_eager')
    found = parity.check(CASES[name], 'cpu', 'compiled', parity.PRECISIONS[1])
    assert found['status'] == 'ok', found


class Graph(MagicMock):
    """Records what is computed within it, and computes it again when it is replayed."""

    works, captured = True, []

    def replay(self):
        (call, precision, outcome), self.captured[:] = self.captured[-1], []
        again = compute(call, precision)
        for old, new in zip([*outcome[0], *outcome[1]], [*again[0], *again[1]], strict=True):
            if self.works and old is not None:
                old.detach().copy_(new)


compute = parity.eager


@pytest.fixture
def graphs(monkeypatch):
    """What there is of CUDA graphs on a processor."""

    def eager(call, precision):
        outcome = compute(call, precision)
        Graph.captured.append((call, precision, outcome))
        return outcome

    monkeypatch.setattr(parity, 'eager', eager)
    monkeypatch.setattr(torch.cuda, 'CUDAGraph', Graph)
    for name in ('Stream', 'current_stream', 'set_sync_debug_mode', 'get_sync_debug_mode'):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    for name in ('graph', 'stream'):
        monkeypatch.setattr(torch.cuda, name, lambda _: nullcontext())


@pytest.mark.usefixtures('as_on_a_gpu', 'graphs')
@pytest.mark.parametrize('name', SOME)
def test_graphs_are_compared_on_other_values_than_they_are_captured_on(name, monkeypatch):
    for works, status in ((True, 'ok'), (False, 'failed')):
        monkeypatch.setattr(Graph, 'works', works)
        found = parity.check(CASES[name], 'cpu', 'CUDA graph', parity.PRECISIONS[1])
        assert found['status'] == status, found
    assert parity.check(CASES[name], 'cpu', 'no sync', parity.PRECISIONS[0])['status'] == 'ok'
    modes = [call.args[0] for call in torch.cuda.set_sync_debug_mode.call_args_list]
    assert modes == ['error', torch.cuda.get_sync_debug_mode()]


WRONG = {
    'off by 2 %': lambda x: 1.02 * x,
    'gradient': lambda x: 2 * x - x.detach(),
    'a gradient that is no number': lambda x: x + (x - x.detach()).abs().sqrt(),
    'no number': lambda x: x * torch.nan,
    'dtype': lambda x: x.double(),
    'no gradient': lambda x: x.detach(),
}


@pytest.mark.parametrize('name', WRONG)
def test_a_wrong_fast_path_is_seen(name):
    def compute(x, y):
        return (WRONG[name](x) if ops_path() == 'auto' else x) * y

    make = lambda: (compute, [torch.randn(50).requires_grad_() for _ in range(2)])  # noqa: E731
    line = Line('op', 'x', 'eager', 'bf16', (), lambda: lines._check('op', make, 'cpu', *BF16))
    found = result_of(line)
    assert found['status'] == 'failed', found


BF16 = 'eager', next(p for p in parity.PRECISIONS if p.name == 'bf16')


def test_networks_are_measured_in_turns_and_each_problem_is_its_own():
    names = ('xcit_nano_12_p16', 'timm/no_such_net')
    found = measure(names, 'cpu', 1, 32)
    assert found['status'] == 'ok'  # of ours
    assert 'timm/no_such_net: UnknownRowError' in found['text']
    (figures,) = found['figures'].values()
    assert {key: len(x) for key, x in figures.items()} == dict(memory=1, forward=7, both=7)
    assert measure(('no_such_net',), 'cpu', 1, 32)['status'] == 'failed'


def line(name, run, precision='fp32'):
    return Line('op', name, 'eager', precision, (), run)


LINES = [
    line('first', lambda: dict(status='ok', text='0.50')),
    line('first', lambda: not_run('why not'), 'bf16'),
    line('raises', lambda: 1 / 0),
    line('crashes', lambda: os._exit(3)),
    line('waits', lambda: time.sleep(100)),
    line('last', lambda: dict(status='ok', text='0.70')),
    Line('layer', 'elsewhere', 'eager', 'fp32', ('no_such_module',), dict),
]


@pytest.fixture
def few_lines(monkeypatch):
    """In processes that see what is changed here."""
    monkeypatch.setattr(process, 'get_context', lambda _: get_context('fork'))
    monkeypatch.setattr(process, 'PATIENCE', 5.0)
    for module in (process, command):
        monkeypatch.setattr(module, 'all_lines', lambda *_: LINES)


@pytest.mark.usefixtures('few_lines')
def test_each_line_stands_for_itself(monkeypatch, tmp_path, capsys):
    file = tmp_path / 'found.json'
    monkeypatch.setattr(sys, 'argv', ['gpu_check', '--json', str(file)])
    with pytest.raises(SystemExit) as error:
        command.main()
    assert error.value.code == 1
    found = {(x['name'], x['precision']): x for x in json.loads(file.read_text())['lines']}
    assert len(found) == len(LINES)
    texts = {name: found[name, 'fp32']['text'] for name in ('raises', 'crashes', 'waits')}
    assert texts['raises'] == 'ZeroDivisionError: division by zero'
    assert 'its process ended (3)' in texts['crashes']
    assert 'no result after 5 s' in texts['waits']
    assert found['last', 'fp32'] | dict(status='ok') == found['last', 'fp32']
    out = capsys.readouterr().out
    assert 'FAILED op, raises, eager, fp32: ZeroDivisionError' in out
    assert 'no_such_module cannot be imported' in out
    (row,) = (row for row in out.splitlines() if row.startswith('op       first'))
    assert row.split()[-6:] == ['0.50', *'-----']


@pytest.mark.usefixtures('few_lines')
def test_what_does_not_fit_into_the_time_is_listed():
    found = {}
    process.run_lines('cuda', 1, 1e-9, found.__setitem__)
    assert [found[i] for i in range(len(LINES))] == [not_run('no time left')] * len(LINES)
    process.run_lines(None, 1, 3 / 60, found.__setitem__)
    assert found[4] == not_run('no time left')


@pytest.mark.usefixtures('few_lines')
def test_what_was_found_before_an_interruption_is_kept(monkeypatch, tmp_path, capsys):
    def interrupted(device, batch, minutes, report):
        report(0, dict(status='ok', text='0.50'))
        raise KeyboardInterrupt

    file = tmp_path / 'found.json'
    monkeypatch.setattr(command, 'run_lines', interrupted)
    monkeypatch.setattr(sys, 'argv', ['gpu_check', '--json', str(file)])
    with pytest.raises(SystemExit, match='130'):
        command.main()
    found = json.loads(file.read_text())['lines']
    assert [x['status'] for x in found] == ['ok', *['not run'] * (len(LINES) - 1)]
    assert ': interrupted\n' in capsys.readouterr().out


@pytest.mark.usefixtures('few_lines')
def test_a_process_whose_gpu_does_not_answer_is_followed_by_another(monkeypatch):
    monkeypatch.setattr(
        process, 'all_lines', lambda *_: [line('x', lambda: not_run(os.getpid()))] * 3
    )
    found = {}
    process.run_lines('cuda', 1, 1, found.__setitem__)
    assert len({result['text'] for result in found.values()}) == 3


ALONE = """
import sys
for name in ('timm', 'torchvision', 'mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain', 'numpy'):
    sys.modules[name] = None
from mmbixt.gpu_check.lines import all_lines, result_of
done = set()
for line in all_lines(None, 1):
    if line.way == 'fake CUDA' and line.part not in done:
        done.add(line.part)
        print('FOUND', line.part, result_of(line))
"""


@only_in_zoo
def test_torch_alone_is_enough_for_ops_and_layers():
    out = python('-W', 'ignore', '-c', ALONE)
    assert out.count("'status': 'ok'") == 2
    assert out.count('mmengine cannot be imported') == 1
    assert 'mmcv cannot be imported' in out

"""Check ops, layers, backbones and models on a GPU, and measure them: one table, one JSON file.

A cell of the table is the error of the fast path relative to float64, divided by the error of the
plain order (the reference) in the same precision plus one rounding. At most 1.5 is allowed. Ops and
layers need torch only, the others mmengine, timm and a framework. Without a GPU, forward passes run
on CUDA tensors without data.
"""

import argparse
import json
import platform
import sys
from collections import Counter
from importlib.metadata import distributions
from pathlib import Path

import torch

from mmbixt.gpu_check.lines import Line, all_lines, not_run
from mmbixt.gpu_check.parity import PRECISIONS
from mmbixt.gpu_check.process import run_lines

PACKAGES = 'torch', 'triton', 'timm', 'mmengine', 'mmcv', 'mmsegmentation', 'mmdet', 'mmpretrain'
COLUMNS = [precision.name for precision in PRECISIONS]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m mmbixt.gpu_check', description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument('--minutes', type=float, default=8, help='at most (default: 8)')
    text = 'images at a time where times are taken (default: 16)'
    parser.add_argument('--batch', type=int, default=16, help=text)
    text = 'for all results (default: gpu_check.json)'
    parser.add_argument('--json', type=Path, default='gpu_check.json', metavar='FILE', help=text)
    args = parser.parse_args()
    if args.minutes <= 0 or args.batch < 1:
        parser.error('--minutes is above 0, --batch at least 1.')
    if not args.json.absolute().parent.is_dir():
        parser.error(f'--json {args.json}: there is no such folder.')
    return args


def machine() -> dict[str, str]:
    """Versions and hardware, which the results depend on."""
    found = dict(python=platform.python_version())
    found |= {x.name: x.version for x in distributions() if x.name in PACKAGES}
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        found.update(gpu=gpu.name, capability=f'{gpu.major}.{gpu.minor}', cuda=torch.version.cuda)
        found['memory'] = f'{gpu.total_memory / 1e9:.0f} GB'
    return found


class Table:
    """Prints a row as soon as all its cells are known."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.entries: list[dict] = []  # for the JSON file
        self.row: dict[str, dict] = {}  # by precision

    def add(self, number: int, result: dict) -> None:
        line, following = self.lines[number], self.lines[number + 1 : number + 2]
        self.entries.append(dict(zip(Line._fields[:4], line[:4], strict=True)) | result)
        self.row[line.precision] = result
        if following and following[0][:3] == line[:3]:
            return
        if any(found['status'] != 'not run' for found in self.row.values()):
            head = f'{line.part:9}{line.name:48}{line.way:14}'
            print(head + self._cells(line.part in ('time', 'model')), flush=True)
        self.row = {}

    def _cells(self, in_words: bool) -> str:
        if in_words:
            return '; '.join(f'{key}: {found["text"]}' for key, found in self.row.items())
        short = {'failed': 'FAILED', 'not run': '-'}
        cells = {key: short.get(x['status'], x['text']) for key, x in self.row.items()}
        return ''.join(cells.get(name, '-').rjust(10) for name in COLUMNS)

    def summary(self) -> str:
        """The failures, the checks that were not run with the reason, and the numbers of each."""
        texts, left = [], Counter()
        for entry in self.entries:
            if entry['status'] == 'failed':
                texts.append('FAILED {part}, {name}, {way}, {precision}: {text}'.format(**entry))
            elif entry['status'] == 'not run':
                left['{part}, {way}: {text}'.format(**entry)] += 1
        texts += [f'not run: {count} of {what}' for what, count in left.items()]
        counts = Counter(entry['status'] for entry in self.entries)
        return '\n'.join([*texts, ', '.join(f'{n} {status}' for status, n in counts.items())])


def main() -> None:
    args = parse_args()
    device = 'cuda' if torch.cuda.is_available() else None
    found = machine()
    print(', '.join(f'{key} {value}' for key, value in found.items()))
    if device is None:
        print('No GPU that torch can use: forward passes on CUDA tensors without data.')
    lines = all_lines(device, args.batch)
    table, status = Table(lines), 0
    print(f'{"":71}' + ''.join(name.rjust(10) for name in COLUMNS), flush=True)
    try:
        run_lines(device, args.batch, args.minutes, table.add)
    except KeyboardInterrupt:
        status = 130
        for number in range(len(table.entries), len(lines)):
            table.add(number, not_run('interrupted'))
    finally:
        args.json.write_text(json.dumps(dict(machine=found, lines=table.entries), indent=1))
    print(f'{table.summary()}\nall results: {args.json}')
    sys.exit(status or any(entry['status'] == 'failed' for entry in table.entries))


if __name__ == '__main__':
    main()

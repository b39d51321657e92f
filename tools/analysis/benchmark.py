"""Time and memory of networks: forward, forward and backward, at one or more image sizes.

Each network runs in its own process, and the processes alternate: A B A B. With --against, the last
columns are ratios: time of the baseline / time of the network, memory of the network / memory of
the baseline.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import torch
from benchmarking.plots import fit_exponent, plot_growth
from benchmarking.turns import Measured, WorkerError, measure, ratio, spread

from mmbixt.benchmarking.networks import NAMES
from mmbixt.benchmarking.worker import DTYPES, Setting
from mmbixt.evaluation.tables import aligned
from mmbixt.progress import progress


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f'A ROW is one of\n{NAMES}\n\nExample: python tools/analysis/benchmark.py '
        'xcit_tiny_12_p16 --against timm/xcit_tiny_12_p16_224 --sizes 512 1024',
    )
    add = parser.add_argument
    add('rows', nargs='+', metavar='ROW', help='networks to measure, see below')
    add('--against', metavar='ROW', help='the baseline')
    add('--sizes', nargs='+', type=int, default=[512], metavar='PIXELS')
    add('--batch', type=int, default=1, help='images at a time (default: 1)')
    add('--rounds', type=int, default=5, help='measurements of each (default: 5)')
    add('--device', choices=['cpu', 'cuda'], default='cpu')
    add('--dtype', choices=list(DTYPES), default='fp32')
    add('--threads', type=int, default=os.cpu_count(), help='of the CPU (default: all cores)')
    add('--json', type=Path, metavar='FILE', help='write all measurements')
    text = 'plot time and memory over the number of pixels'
    add('--plot', type=Path, metavar='PNG', help=text)
    args = parser.parse_args()
    if args.plot and len(set(args.sizes)) < 2:
        parser.error('--plot shows growth: give two --sizes or more.')
    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('--device cuda: torch finds no GPU.')
    if min(args.rounds, args.batch, args.threads, *args.sizes) < 1:
        parser.error('--rounds, --batch, --threads and --sizes must be at least 1.')
    return args


HEADER = ['row', 'pixels', 'forward', '', 'fwd+bwd', '', 'memory', 'images/s', 'of peak']
RATIOS = ['fwd', 'fwd+bwd', 'memory']


def make_row(one: Measured, baseline: Measured | None, batch: int) -> list[str]:
    forward = median(one.forward)
    row = [one.name, str(one.size)]
    for seconds in (one.forward, one.both):
        row += [f'{median(seconds) * 1e3:.1f} ms', f'± {spread(seconds):.0%}']
    row += [f'{one.memory / 2**20:.0f} MiB', f'{batch / forward:.2f}']
    row.append(f'{one.macs / forward / one.peak:.0%}')
    if baseline is not None:
        row += [f'{ratio(one.forward, baseline.forward):.2f}x']
        row += [f'{ratio(one.both, baseline.both):.2f}x', f'{one.memory / baseline.memory:.2f}']
    return row


def make_table(found: Sequence[Measured], against: str | None, batch: int) -> str:
    """A table of all networks and sizes."""
    baselines = {one.size: one for one in found if one.name == against}
    rows = [HEADER + (RATIOS if against else [])]
    rows += [make_row(one, baselines.get(one.size), batch) for one in found]
    lines = aligned(rows)
    lines.insert(1, '-' * max(map(len, lines)))
    return '\n'.join(lines)


def main() -> None:
    args = parse_args()
    setting = Setting(args.batch, args.device, args.dtype, args.threads)
    names = list(dict.fromkeys([*([args.against] if args.against else []), *args.rows]))
    found: list[Measured] = []
    bar = progress(total=len(args.sizes) * len(names) * (args.rounds + 2))
    try:
        for size in args.sizes:
            bar.set_description(f'{size} pixels')
            found += measure(names, size, setting, args.rounds, bar.update)
            if args.json:  # after each size, so that an error loses less
                measured = [asdict(one) for one in found]
                content = dict(setting=vars(setting), torch=torch.__version__, measured=measured)
                args.json.write_text(json.dumps(content, indent=1))
    except WorkerError as error:
        bar.close()
        sys.exit(f'error: {error}')
    bar.close()
    print(f'{args.device}, {args.threads} threads, {args.dtype}, batch {args.batch};', end=' ')
    print(f'medians of {args.rounds} alternating rounds, ± half the interquartile range')
    if args.against:
        print(f'ratios to {args.against}: its time / time of the row; memory of the row / its')
    print(make_table(found, args.against, args.batch))
    if len(set(args.sizes)) > 1:
        for name in names:
            rows = [one for one in found if one.name == name]
            time, macs = fit_exponent(rows), fit_exponent(rows, lambda one: one.macs)
            print(f'{name}: time grows as pixels^{time:.2f}, multiply-adds as pixels^{macs:.2f}')
    if args.plot:
        plot_growth(found, args.plot)
        print(f'plot: {args.plot}')


if __name__ == '__main__':
    main()

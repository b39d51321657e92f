"""Work of networks on a GPU: kernels, bytes, multiply-adds, memory. Counted, not measured.

Operators are counted on tensors that have a shape but no data, so no GPU is needed. The lower bound
of the time is the maximum of three: bytes / bandwidth of the GPU, multiply-adds / its peak, and
kernels x time of a launch. No GPU reaches it: it shows the bottleneck, not the real time. The rules
of counting are in benchmarking/cost.py.
"""

import argparse
import re
from typing import NamedTuple

import torch
from benchmarking.cost import Cost, count

from mmbixt.benchmarking.networks import NAMES, UnknownRowError, build
from mmbixt.cli import run
from mmbixt.evaluation.tables import aligned
from mmbixt.ops import use_ops
from mmbixt.ops.dispatch import PathError

DTYPES = dict(fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)
LAUNCH = 4e-6  # seconds of CPU time per operator of eager torch


class Card(NamedTuple):
    """A GPU: bytes per second, and multiply-adds per second in half precision and in float32."""

    name: str
    bandwidth: float
    half: float
    single: float


CARDS = (
    Card('A100 80GB', 2.04e12, 156e12, 9.7e12),
    Card('H100 SXM', 3.35e12, 495e12, 33e12),
    Card('RTX 4090', 1.01e12, 83e12, 41e12),
    Card('L4', 0.30e12, 60e12, 15e12),
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f'A NAME is one of\n{NAMES}\n\nExample: python tools/analysis/gpu_cost.py '
        'xcit_small_12_p16 timm/xcit_small_12_p16_224 --batch 16 --train --top 10',
    )
    parser.add_argument('names', nargs='+', metavar='NAME', help='networks, see below')
    parser.add_argument('--size', type=int, default=512, metavar='PIXELS')
    parser.add_argument('--batch', type=int, default=1, help='images at a time (default: 1)')
    text = 'type of weights and images (default: bf16)'
    parser.add_argument('--dtype', choices=list(DTYPES), default='bf16', help=text)
    parser.add_argument(
        '--train', action='store_true', help='a forward and backward pass in training mode'
    )
    text = 'also list the N operators and modules that move most bytes'
    parser.add_argument('--top', type=int, default=0, metavar='N', help=text)
    args = parser.parse_args()
    if min(args.batch, args.size) < 1 or args.top < 0:
        parser.error('--size and --batch must be at least 1, --top at least 0.')
    return args


def count_network(name: str, size: int, batch: int, dtype: torch.dtype, train: bool) -> Cost:
    """The cost of a network on square images, with weights and images of one dtype."""
    model, mode = build(name, size)
    if mode == 'compiled':
        raise UnknownRowError(f'{name}: compiled networks cannot be counted.')
    model = model.to('meta', dtype)
    model.train(train)  # a separate statement: train() of some mmseg models returns None
    image = torch.empty(batch, 3, size, size, dtype=dtype, device='meta')
    with use_ops(mode):
        return count(model, image, train=train)


def bounds(cost: Cost, card: Card, dtype: torch.dtype) -> dict[str, float]:
    """Lower bounds of the time in seconds, by resource."""
    peak = card.single if dtype == torch.float32 else card.half
    return {
        'memory': cost.bytes / card.bandwidth,
        'products': cost.macs / peak,
        'launches': len(cost.kernels) * LAUNCH,
    }


def table_of_cards(cost: Cost, dtype: torch.dtype) -> str:
    rows = [['card', 'memory', 'products', 'launches', 'at least', 'bound by']]
    for card in CARDS:
        times = bounds(cost, card, dtype)
        largest = max(times, key=times.__getitem__)
        cells = [f'{time * 1e3:.1f} ms' for time in (*times.values(), times[largest])]
        rows.append([card.name, *cells, largest])
    return '\n'.join(f'  {line}' for line in aligned(rows))


def table_of_groups(title: str, groups: dict[str, tuple[int, int, int]], top: int) -> str:
    rows = [[title, 'kernels', 'GB', 'G multiply-adds']]
    for name, (kernels, moved, macs) in list(groups.items())[:top]:
        rows.append([name or '(itself)', str(kernels), f'{moved / 1e9:.3f}', f'{macs / 1e9:.1f}'])
    return '\n'.join(f'  {line}' for line in aligned(rows))


def report(name: str, cost: Cost, dtype: torch.dtype, top: int) -> str:
    parts = [
        f'{name}: {cost.bytes / 1e9:.1f} GB moved, {len(cost.kernels)} kernels, '
        f'{cost.macs / 1e9:.1f} G multiply-adds, {cost.peak / 1e9:.2f} GB live at most',
        table_of_cards(cost, dtype),
    ]
    if top:
        by_module = cost.by(lambda kernel: re.sub(r'\d+', '*', kernel.module))
        parts.append(table_of_groups('operator', cost.by(lambda kernel: kernel.kind), top))
        parts.append(table_of_groups('module', by_module, top))
    return '\n\n'.join(parts)


def main() -> None:
    args = parse_args()
    dtype = DTYPES[args.dtype]
    print(
        'Computed from shapes, not measured: nothing has run on a GPU.\n'
        f'{args.batch} x {args.size} x {args.size} pixels, {args.dtype}, '
        f'{"forward and backward" if args.train else "forward"}, eager'
    )
    for name in args.names:
        try:
            cost = count_network(name, args.size, args.batch, dtype, args.train)
        except (UnknownRowError, PathError) as error:
            raise SystemExit(f'error: {name}: {error}') from error
        except RuntimeError as error:  # NotImplementedError is one
            if 'meta' not in str(error):
                raise
            raise SystemExit(
                f'error: {name} reads values of tensors, which do not exist here: {error}'
            ) from error
        print(f'\n{report(name, cost, dtype, args.top)}')


if __name__ == '__main__':
    run(main)

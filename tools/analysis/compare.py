"""Compare two runs over all pixels and near boundaries, with confidence intervals.

A run is a file of counts by image, boundary.npz, written by boundary_eval.py --sums or by
BoundaryIoUMetric(sums_file=...); or a folder that contains one. The 95 % intervals are those of a
paired bootstrap over the images: if an interval does not contain 0, the difference is likely to
hold for other images of the same kind. Training with another seed is another source of variation.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

# no imports of torch, which take seconds
from mmbixt.evaluation.bootstrap import (
    LEVEL,
    Estimate,
    NotPairedError,
    draw_weights,
    estimate,
    paired,
)
from mmbixt.evaluation.boundary import MAIN_BAND, scores
from mmbixt.evaluation.sums import ImageSums, SumsFileError, find_sums, read_sums
from mmbixt.evaluation.tables import absent_classes, headline

CLASS_WIDTH = 24  # characters; longer names are cut


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('runs', nargs=2, type=Path, metavar='RUN', help='A and B')
    parser.add_argument('--names', nargs=2, metavar=('A', 'B'), help='names of the runs')
    parser.add_argument(
        '--per-class',
        nargs='?',
        const=MAIN_BAND,
        metavar='BAND',
        help='print IoU of each class, over all pixels and in a band (default: %(const)s)',
    )
    parser.add_argument('--plot', type=Path, metavar='FILE.png', help='plot mIoU over the widths')
    parser.add_argument('--samples', type=int, default=1000, help='bootstrap draws (default: 1000)')
    parser.add_argument('--seed', type=int, default=0, help='seed of the draws (default: 0)')
    args = parser.parse_args()
    if args.samples < 1 or args.seed < 0:
        parser.error('--samples must be at least 1, --seed at least 0')
    if args.names and args.names[0] == args.names[1]:
        parser.error('--names must differ')
    return args


def bounds(one: Estimate, digits: int) -> str:
    low, high = one.interval()
    return f'[{low:+.{digits}f}, {high:+.{digits}f}]'


def relative_gap(found: dict[str, Estimate], where: str) -> float:
    """100 (all - band) / all of mIoU."""
    everywhere = found['all/mIoU'].value
    return float(100 * (everywhere - found[f'{where}/mIoU'].value) / everywhere)


def make_table(first: dict[str, Estimate], second: dict[str, Estimate]) -> str:
    """A table of the means over classes: all pixels, bands, Boundary IoU and F."""
    lines = [
        f'{"":20}{"A":>8}{"B":>8}{"B - A":>9}   {f"{LEVEL} % interval":17}{"gap A":>8}{"gap B":>8}'
    ]
    for name in first:
        a, b = first[name], second[name]
        where = name.rpartition('/')[0]
        line = f'{name:20}{a.value:8.2f}{b.value:8.2f}{b.value - a.value:+9.2f}   '
        line += f'{bounds(b - a, 2):17}'
        if where.startswith('band'):
            line += ''.join(f'{relative_gap(found, where):8.2f}' for found in (first, second))
        lines.append(line.rstrip())
    return '\n'.join(lines)


def make_class_table(
    classes: list[str], first: dict[str, Estimate], second: dict[str, Estimate], band: str
) -> str:
    """IoU of each class, over all pixels and in a band; the largest gain of B in the band first."""
    places = ('all', band)
    gains = {where: second[f'{where}/IoU'] - first[f'{where}/IoU'] for where in places}
    intervals = {where: gain.interval() for where, gain in gains.items()}
    titles = ''.join(f'{"A":>7}{"B":>7}{"B - A":>8} {f"{LEVEL} %":15}' for _ in places)
    lines = [
        f'{"":{CLASS_WIDTH}}'
        + ''.join(f'{where + "/IoU":>14}{"":24}' for where in places).rstrip(),
        f'{"class":{CLASS_WIDTH}}{titles}'.rstrip(),
    ]
    scored = ~np.isnan([found['all/IoU'].value for found in (first, second)]).all(0)
    for k in np.argsort(-gains[band].value):  # NaN is last
        if not scored[k]:
            continue
        name = classes[k] if len(classes[k]) < CLASS_WIDTH else f'{classes[k][: CLASS_WIDTH - 2]}…'
        line = f'{name:{CLASS_WIDTH}}'
        for where in places:
            a, b = (found[f'{where}/IoU'].value[k] for found in (first, second))
            low, high = intervals[where][:, k]
            line += f'{a:7.1f}{b:7.1f}{b - a:+8.1f} {f"[{low:+.1f}, {high:+.1f}]":15}'
        lines.append(line.rstrip())
    return '\n'.join([*lines, *absent_classes(scored)])


def pixel_shares(counted: ImageSums, scores: Iterable[str]) -> dict[str, float]:
    """Fraction of all pixels in each band with a score, increasing; 'all' (1) is last."""
    total = counted.total()
    places = [name.removesuffix('/mIoU') for name in scores if not name.startswith('boundary')]
    pixels = {where: total[f'{where}/true'].sum() for where in places}
    order = sorted(pixels, key=lambda where: (where == 'all', pixels[where]))
    return {where: float(pixels[where] / pixels['all']) for where in order}


def draw(
    args: argparse.Namespace, counted: ImageSums, means: Sequence[dict[str, Estimate]]
) -> None:
    """Write a figure of the mIoU of both runs over the widths."""
    from mmbixt.visualization.boundary import band_figure  # matplotlib takes a second

    shares = pixel_shares(counted, means[0])
    names = args.names or ('A', 'B')
    curves = {}
    for name, found in zip(names, means, strict=True):
        scores = [found[f'{where}/mIoU'] for where in shares]
        low, high = np.transpose([score.interval() for score in scores])
        curves[name] = np.stack((low, [score.value for score in scores], high))
    title = f'{names[0]} and {names[1]}: mIoU near true boundaries and over all pixels'
    note = f'shaded: {LEVEL} % of {args.samples:,} resamplings of {len(counted.images):,} images, '
    figure = band_figure(shares, curves, title, f'{note}separately for each run')
    try:
        args.plot.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(args.plot)
    except (OSError, ValueError) as error:  # a folder, an unknown image format
        sys.exit(f'error: --plot {args.plot}: {error}')
    print(f'\nplot: {args.plot}')


def load(args: argparse.Namespace) -> tuple[tuple[ImageSums, ImageSums], list[str]]:
    """Counts of both runs with the same order of images; and a line for each run."""
    paths = [find_sums(path) for path in args.runs]
    runs = paired(*map(read_sums, paths))
    names = [f'{name}, ' for name in args.names] if args.names else ['', '']
    return runs, [f'{x}: {name}{path}' for x, name, path in zip('AB', names, paths, strict=True)]


def main() -> None:
    args = parse_args()
    try:
        runs, lines = load(args)
    except (SumsFileError, NotPairedError, OSError) as error:
        sys.exit(f'error: {error}')
    images, classes = runs[0].images, runs[0].classes
    weights = draw_weights(len(images), args.samples, args.seed)
    first, second = (estimate(one, weights) for one in runs)
    names = [name for name in first if name in second and not name.endswith('/Acc')]
    band = args.per_class
    if band and f'{band}/IoU' not in names:
        there = ', '.join(name.removesuffix('/IoU') for name in names if name.endswith('/IoU'))
        sys.exit(f'error: --per-class {band}: the runs have {there}')
    means = [
        {name.replace('/', '/m'): found[name].over_classes() for name in names}  # IoU: mIoU
        for found in (first, second)
    ]
    print(*lines, sep='\n')
    print(f'{len(images):,} images, {len(classes)} classes; {args.samples:,} draws\n')
    found = [scores(one.total()) for one in runs]
    named = dict(zip(args.names or 'AB', found, strict=True))
    print(f'{headline(named)}\n\n{make_table(*means)}')
    if band:
        print(f'\n{make_class_table(classes, first, second, band)}')
    if args.plot:
        draw(args, runs[0], means)


if __name__ == '__main__':
    try:
        main()
    except KeyboardInterrupt:
        print('Interrupted.', file=sys.stderr)
        sys.exit(130)

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
from mmbixt.evaluation.tables import absent_classes, aligned, headline


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


def bounds(low: float, high: float, digits: int) -> str:
    return f'[{low:+.{digits}f}, {high:+.{digits}f}]'


def make_table(
    first: dict[str, Estimate], second: dict[str, Estimate], both: Sequence[dict[str, float]]
) -> str:
    """A table of the means over classes: all pixels, bands, Boundary IoU and F.

    ``both`` are the scores of the runs, for the gaps.
    """
    rows = [['', 'A', 'B', 'B - A', f'{LEVEL} % interval', 'gap A', 'gap B']]
    for name in first:
        a, b = first[name], second[name]
        gap = f'{name.rpartition("/")[0]}/gap'
        gaps = [f'{found[gap]:.2f}' if gap in found else '' for found in both]
        difference = [f'{b.value - a.value:+.2f}', bounds(*(b - a).interval(), 2)]
        rows.append([name, f'{a.value:.2f}', f'{b.value:.2f}', *difference, *gaps])
    return '\n'.join(aligned(rows))


def make_class_table(
    classes: list[str], first: dict[str, Estimate], second: dict[str, Estimate], band: str
) -> str:
    """IoU of each class, over all pixels and in a band; the largest gain of B in the band first."""
    places = ('all', band)
    gains = {where: second[f'{where}/IoU'] - first[f'{where}/IoU'] for where in places}
    intervals = {where: gain.interval() for where, gain in gains.items()}
    titles = 'B', 'B - A', f'{LEVEL} %'
    rows = [['class', *(x for where in places for x in (f'{where}/IoU: A', *titles))]]
    scored = ~np.isnan([found['all/IoU'].value for found in (first, second)]).all(0)
    for k in np.argsort(-gains[band].value):  # NaN is last
        if not scored[k]:
            continue
        row = [classes[k]]
        for where in places:
            a, b = (found[f'{where}/IoU'].value[k] for found in (first, second))
            row += [f'{a:.1f}', f'{b:.1f}', f'{b - a:+.1f}', bounds(*intervals[where][:, k], 1)]
        rows.append(row)
    return '\n'.join([*aligned(rows), *absent_classes(scored)])


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
    from matplotlib.figure import Figure  # takes a second

    shares = pixel_shares(counted, means[0])
    names = args.names or ('A', 'B')
    figure = Figure(figsize=(8, 4.8), layout='constrained', dpi=110)
    figure.suptitle(f'{names[0]} and {names[1]}: mIoU near true boundaries and over all pixels')
    ax = figure.subplots()
    # equidistant: 'all' has no width, and a fraction of the diagonal has many widths in pixels
    steps = np.arange(len(shares))
    for name, found in zip(names, means, strict=True):
        scores = [found[f'{where}/mIoU'] for where in shares]
        low, high = np.transpose([score.interval() for score in scores])
        ax.fill_between(steps, low, high, alpha=0.18, linewidth=0)
        ax.plot(steps, [score.value for score in scores], 'o-', label=name)
    ax.set_xticks(steps, [f'{band}\n({share:.0%} of pixels)' for band, share in shares.items()])
    ax.set(xlabel='pixels that count: those in a band around true boundaries', ylabel='mIoU (%)')
    ax.grid(alpha=0.3)
    ax.legend()
    note = f'shaded: {LEVEL} % of {args.samples:,} resamplings of {len(counted.images):,} images, '
    figure.supxlabel(f'{note}separately for each run', fontsize=9, color='0.35')
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
    print(f'{headline(named)}\n\n{make_table(*means, found)}')
    if band:
        print(f'\n{make_class_table(classes, first, second, band)}')
    if args.plot:
        draw(args, runs[0], means)


if __name__ == '__main__':
    main()

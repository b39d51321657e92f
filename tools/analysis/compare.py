"""Compare two runs, or two models trained with several seeds, near boundaries and over all pixels.

A run is a file of counts by image, boundary.npz (of tools/test.py --boundary, boundary_eval.py
--sums or BoundaryIoUMetric(sums_file=...)), or a folder that contains one.

Two runs: the 95 % intervals are those of a paired bootstrap over the images. If an interval does
not contain 0, the difference is likely to hold for other images of the same kind. Training with
another seed is another source of variation.

Several seeds: runs of A and B at the same position of their lists are pairs (the same seed). Values
after ± are standard deviations over the runs of a model.

With --reach SCORE, a run is the work dir of a training, and what counts is how soon each of two
runs reaches the other's best score.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

# no imports of torch, which take seconds
from mmbixt.errors import UserError
from mmbixt.evaluation.bootstrap import DRAWS, LEVEL, RegionScores, paired, score_regions
from mmbixt.evaluation.boundary import MAIN_BAND, scores
from mmbixt.evaluation.sums import ImageSums, find_sums, read_sums
from mmbixt.evaluation.tables import absent_classes, aligned, main_table

EPILOG = """Examples:
  python tools/analysis/compare.py work_dirs/swin work_dirs/bisa --per-class
  python tools/analysis/compare.py --a work_dirs/swin_? --b work_dirs/bisa_?
  python tools/analysis/compare.py work_dirs/swin work_dirs/bisa --reach accuracy/top1"""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add = parser.add_argument
    add('runs', nargs='*', type=Path, metavar='RUN', help='A and B')
    add('--a', nargs='+', type=Path, metavar='RUN', help='runs of model A, one for each seed')
    add('--b', nargs='+', type=Path, metavar='RUN', help='runs of model B, with the same seeds')
    add('--names', nargs=2, default=('A', 'B'), metavar=('A', 'B'), help='names of runs or models')
    text = 'of two runs: print IoU of each class, over all pixels and in a band (%(const)s)'
    add('--per-class', nargs='?', const=MAIN_BAND, metavar='BAND', help=text)
    text = 'of two runs: plot mIoU over the widths'
    add('--plot', type=Path, metavar='FILE.png', help=text)
    text = 'of two trainings: when each reaches the best SCORE of the other, by their logs'
    add('--reach', metavar='SCORE', help=text)
    args = parser.parse_args()
    if len(args.runs) == 2:
        args.a, args.b = args.runs[:1], args.runs[1:]
    if not args.a or not args.b or len(args.a) != len(args.b):
        parser.error('give two runs, or --a and --b with as many runs each')
    if args.reach and len(args.a) > 1:
        parser.error('--reach compares two runs')
    return args


# --- Two runs -------------------------------------------------------------------------------------


def bounds(low: float, high: float, digits: int) -> str:
    return f'[{low:+.{digits}f}, {high:+.{digits}f}]'


def make_table(first: dict[str, RegionScores], second: dict[str, RegionScores]) -> str:
    """A table of the means over classes: all pixels, bands, Boundary IoU and F."""
    rows = [['', 'A', 'B', 'B - A', f'{LEVEL} % interval', 'gap A', 'gap B']]
    for where, a in first.items():
        b, score = second[where], 'mF' if where.startswith('boundaryF') else 'mIoU'
        gain = b.mean - a.mean
        gaps = [f'{run.gap.value:.2f}' if run.gap else '' for run in (a, b)]
        values = f'{a.mean.value:.2f}', f'{b.mean.value:.2f}', f'{gain.value:+.2f}'
        rows.append([f'{where}/{score}', *values, bounds(*gain.interval(), 2), *gaps])
    return '\n'.join(aligned(rows))


def make_class_table(
    classes: list[str], first: dict[str, RegionScores], second: dict[str, RegionScores], band: str
) -> str:
    """IoU of each class, over all pixels and in a band; the largest gain of B in the band first."""
    pairs = [(first[where].classes, second[where].classes) for where in ('all', band)]
    intervals = [(b - a).interval() for a, b in pairs]
    titles = 'B', 'B - A', f'{LEVEL} %'
    rows = [['class', *(x for where in ('all', band) for x in (f'{where}/IoU: A', *titles))]]
    scored = ~np.isnan([run.value for run in pairs[0]]).all(0)
    gains = pairs[1][1].value - pairs[1][0].value
    for k in (k for k in np.argsort(-gains) if scored[k]):  # NaN is last
        row = [classes[k]]
        for (first_run, second_run), interval in zip(pairs, intervals, strict=True):
            a, b = first_run.value[k], second_run.value[k]
            row += [f'{a:.1f}', f'{b:.1f}', f'{b - a:+.1f}', bounds(*interval[:, k], 1)]
        rows.append(row)
    return '\n'.join([*aligned(rows), *absent_classes(scored)])


def draw(args: argparse.Namespace, runs: Sequence[dict[str, RegionScores]], images: int) -> None:
    """Write a figure of the mIoU of both runs over the widths."""
    from matplotlib.figure import Figure  # takes a second

    shares = {where: x.share for where, x in runs[0].items() if x.share is not None}
    shares = dict(sorted(shares.items(), key=lambda item: (item[0] == 'all', item[1])))
    figure = Figure(figsize=(8, 4.8), layout='constrained', dpi=110)
    figure.suptitle(f'{" and ".join(args.names)}: mIoU near true boundaries and over all pixels')
    ax = figure.subplots()
    # equidistant: 'all' has no width, and a fraction of the diagonal has many widths in pixels
    steps = np.arange(len(shares))
    for name, run in zip(args.names, runs, strict=True):
        curve = [run[where].mean for where in shares]
        low, high = np.transpose([score.interval() for score in curve])
        ax.fill_between(steps, low, high, alpha=0.18, linewidth=0)
        ax.plot(steps, [score.value for score in curve], 'o-', label=name)
    ax.set_xticks(steps, [f'{band}\n({share:.0f}% of pixels)' for band, share in shares.items()])
    ax.set(xlabel='pixels that count: those in a band around true boundaries', ylabel='mIoU (%)')
    ax.grid(alpha=0.3)
    ax.legend()
    note = f'shaded: {LEVEL} % of {DRAWS:,} resamplings of {images:,} images, '
    figure.supxlabel(f'{note}separately for each run', fontsize=9, color='0.35')
    args.plot.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.plot)
    print(f'\nplot: {args.plot}')


def compare_runs(args: argparse.Namespace, runs: Sequence[ImageSums]) -> None:
    """Print the scores of two runs and the intervals of their differences."""
    images, classes = len(runs[0].images), runs[0].classes
    first, second = map(score_regions, runs)
    with_iou = [name for name in first if not name.startswith('boundaryF')]
    if args.per_class and args.per_class not in with_iou:
        sys.exit(f'error: --per-class {args.per_class}: the runs have {", ".join(with_iou)}')
    print(f'{images:,} images, {len(classes)} classes; {DRAWS:,} draws\n')
    both = [scores(run.total()) for run in runs]
    print(f'{main_table(dict(zip(args.names, both, strict=True)))}\n\n{make_table(first, second)}')
    if args.per_class:
        print(f'\n{make_class_table(classes, first, second, args.per_class)}')
    if args.plot:
        draw(args, (first, second), images)


# --- Several seeds --------------------------------------------------------------------------------


def with_spread(values: np.ndarray) -> str:
    return f'{values.mean():.2f} ± {values.std(ddof=1):.2f}'


def compare_seeds(args: argparse.Namespace, runs: Sequence[Sequence[ImageSums]]) -> None:
    """Print mean and standard deviation of each score, for A, for B and for B - A."""
    by_seed = [[scores(run.total()) for run in model] for model in runs]
    first, second = (
        {name: np.array([run[name] for run in model]) for name in model[0]} for model in by_seed
    )
    rows = [['', 'A', 'B', 'B - A', 'B - A by seed']]
    for name in first:
        if name.endswith(('/mIoU', '/gap')):
            a, b = first[name], second[name]
            seeds = ' '.join(f'{x:+.2f}' for x in b - a)
            rows.append([name, *map(with_spread, (a, b, b - a)), seeds])
    means = [{name: values.mean() for name, values in model.items()} for model in (first, second)]
    print(f'\n{main_table(dict(zip(args.names, means, strict=True)))}\n')
    print('\n'.join(aligned(rows)))


# --- How soon one run is as good as another -------------------------------------------------------


def validations(folder: Path, score: str) -> list[tuple[int, float]]:
    """The epoch (or iteration, where the loop has no epochs) and the score of each validation."""
    from mmbixt.report.work_dir import merge, read_records, starts_in  # imports torch

    found, time = [], 0
    logs = [read_records(start / 'vis_data/scalars.json') for start in starts_in(folder)]
    for record in merge(logs):
        if 'loss' in record:
            time = int(record.get('epoch', record['step']))
        elif np.isfinite(record.get(score, np.nan)):
            found.append((time, record[score]))
    if not found:
        sys.exit(f'error: no validation in {folder} has the score {score}')
    return found


def compare_speeds(folders: Sequence[Path], score: str) -> None:
    """Print when each run has its best score, and when it reaches that of the other."""
    runs = [validations(folder, score) for folder in folders]
    best = [max(run, key=lambda x: x[1]) for run in runs]
    rows = [['', f'best {score}', 'at', "reaches the other's best at"]]
    for folder, run, (time, value), (_, goal) in zip(folders, runs, best, best[::-1], strict=True):
        reached = next((str(time) for time, value in run if value >= goal), 'never')
        rows.append([str(folder), f'{value:.2f}', str(time), f'{reached} of {run[-1][0]}'])
    print('\n'.join(aligned(rows)))


def main() -> None:
    args = parse_args()
    if args.reach:
        compare_speeds([*args.a, *args.b], args.reach)
        return
    try:
        paths = [[find_sums(run) for run in model] for model in (args.a, args.b)]
        reference = read_sums(paths[0][0])
        runs = [[paired(reference, read_sums(path))[1] for path in model] for model in paths]
        every = [*runs[0], *runs[1]]
        common = set.intersection(*({*run.counts} for run in every))  # bands may differ
        for run in every:
            for name in run.counts.keys() - common:
                del run.counts[name]
        for letter, name, model in zip('AB', args.names, paths, strict=True):
            label = letter if name == letter else f'{letter} ({name})'
            print(f'{label}: {", ".join(map(str, model))}')
        if len(args.a) == 1:
            compare_runs(args, [runs[0][0], runs[1][0]])
        else:
            compare_seeds(args, runs)
    except UserError as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    main()

"""Compare two models that were trained several times each, with different seeds.

A run is a folder or file with the counts of tools/test.py --boundary, as for compare.py. Runs of A
and B at the same position of their lists are pairs (the same seed), so both lists need the same
length. Values after ± are standard deviations over the runs of a model.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

# no imports of torch, which take seconds
from mmbixt.evaluation.bootstrap import NotPairedError, paired
from mmbixt.evaluation.boundary import scores
from mmbixt.evaluation.sums import SumsFileError, find_sums, read_sums
from mmbixt.evaluation.tables import aligned, headline

SHOWN = ('mIoU', 'gap')  # scores in the table, per cent


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/analysis/compare_seeds.py --a work_dirs/swin_* '
        '--b work_dirs/bisa_*',
    )
    for model in 'ab':
        text = f'runs of model {model.upper()}, one for each seed'
        parser.add_argument(
            f'--{model}', nargs='+', type=Path, required=True, metavar='RUN', help=text
        )
    args = parser.parse_args()
    if len(args.a) != len(args.b):
        parser.error(
            f'there are {len(args.a)} runs of A and {len(args.b)} of B: the lists must be pairs, '
            'one for each seed'
        )
    runs = [run.resolve() for run in (*args.a, *args.b)]
    if twice := [run for i, run in enumerate(runs) if run in runs[:i]]:
        parser.error(f'{twice[0]} is given twice')
    return args


def check_seeds(paths: Sequence[Path]) -> None:
    """An error if runs of a model are of different images; a note if two have the same counts."""
    first, seen = read_sums(find_sums(paths[0])), {}
    for path in paths:
        run = read_sums(find_sums(path))
        paired(first, run)
        other = seen.setdefault(b''.join(x.tobytes() for x in run.counts.values()), path)
        if other != path:
            print(
                f'Note: {other} and {path} have the same counts. Is one a copy of the other, or '
                'were both trained with the same seed (--cfg-options randomness.seed=...)?'
            )


def scores_of_pairs(first: Sequence[Path], second: Sequence[Path]) -> tuple[list[dict], list[dict]]:
    """Scores of each run of A and of B; an error if the images or truths of a pair differ."""
    found = [], []
    check_seeds(first)
    check_seeds(second)
    for paths in zip(first, second, strict=True):
        pair = paired(*(read_sums(find_sums(path)) for path in paths))
        for model_scores, counted in zip(found, pair, strict=True):
            model_scores.append(scores(counted.total()))
    every = [run for runs in found for run in runs]
    common = [name for name in every[0] if all(name in run for run in every)]  # bands may differ
    return tuple([{name: run[name] for name in common} for run in runs] for runs in found)


def make_table(first: list[dict], second: list[dict]) -> str:
    """Mean and standard deviation of each score, for A, for B and for B - A."""
    rows = [['', 'A', 'B', 'B - A', 'B - A by seed']]
    for name in first[0]:
        if name.rpartition('/')[2] in SHOWN:
            a, b = (np.array([found[name] for found in runs]) for runs in (first, second))
            seeds = ' '.join(f'{x:+.2f}' for x in b - a)
            rows.append([name, *map(with_spread, (a, b, b - a)), seeds])
    return '\n'.join(aligned(rows))


def with_spread(values: np.ndarray) -> str:
    spread = f' ± {values.std(ddof=1):.2f}' if len(values) > 1 else ''
    return f'{values.mean():.2f}{spread}'


def main() -> None:
    args = parse_args()
    try:
        found = scores_of_pairs(args.a, args.b)
    except (SumsFileError, NotPairedError, OSError) as error:
        sys.exit(f'error: {error}')
    for model, paths in (('A', args.a), ('B', args.b)):
        print(f'{model}: {", ".join(map(str, paths))}')
    means = [{name: np.mean([one[name] for one in runs]) for name in runs[0]} for runs in found]
    print(f'\n{headline(dict(zip("AB", means, strict=True)))}\n\n{make_table(*found)}')


if __name__ == '__main__':
    main()

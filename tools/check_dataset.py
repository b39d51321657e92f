"""Check a data set before hours are spent on it.

Looks for every file of ADE20K, COCO or ImageNet, opens each picture to its last byte, compares
sizes, labels and annotations, and names what is missing or broken. Nothing is changed.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

from tqdm import tqdm

from mmbixt.cli import run
from mmbixt.datasets.inspection import Part, WrongFolderError, find_parts

SHOWN = 20  # problems of a part


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/check_dataset.py data/ade/ADEChallengeData2016',
    )
    parser.add_argument('root', type=Path, help='the folder that a config calls data_root')
    parser.add_argument(
        '--subset', action='store_true', help='a part of the pictures is meant to be there'
    )
    parser.add_argument(
        '--quick', action='store_true', help='look at names and annotations, open no picture'
    )
    parser.add_argument(
        '--workers', type=int, default=os.cpu_count(), help='processes (default: all cores)'
    )
    parser.add_argument('--out', type=Path, metavar='FILE', help='write all problems to this file')
    args = parser.parse_args()
    if args.workers < 1:
        parser.error(f'--workers {args.workers}: at least 1')
    return args


def inspect(part: Part, args: argparse.Namespace) -> list[str]:
    """All problems of a part; says what it does."""
    problems = list(part.problems)
    if part.count != part.expected and not args.subset:
        hint = ' (--subset if that is meant)' if part.count else ''
        problems.insert(0, f'{part.count:,} pictures, not {part.expected:,}{hint}')
    print(f'{part.name}: {part.count:,} pictures')
    if part.files and not args.quick:
        with ProcessPoolExecutor(min(args.workers, len(part.files))) as pool:
            found = pool.map(part.check, part.files, chunksize=8)
            problems += chain.from_iterable(tqdm(found, total=len(part.files), leave=False))
    for note in part.notes:
        print(f'  note: {note}')
    for problem in problems[:SHOWN]:
        print(f'  {problem}')
    if len(problems) > SHOWN:
        print(f'  ... and {len(problems) - SHOWN:,} more (all with --out FILE)')
    return problems


def main() -> None:
    args = parse_args()
    try:
        name, parts = find_parts(args.root)
    except WrongFolderError as error:
        sys.exit(f'error: {error}')
    print(f'{name} in {args.root.absolute()}')
    problems = list(chain.from_iterable(inspect(part, args) for part in parts))
    if args.out:
        args.out.write_text(''.join(f'{problem}\n' for problem in problems))
    if problems:
        word = 'problem' if len(problems) == 1 else 'problems'
        sys.exit(
            f'{len(problems):,} {word}. Download again what is missing or broken; correct the rest.'
        )
    print('All is there' + ('.' if args.quick else ' and can be read.'))


if __name__ == '__main__':
    run(main)

"""Write one HTML file about a run: how it learned, its scores everywhere and near boundaries, the
images that it does worst and best, its configuration. The file needs nothing else: it can be sent.

What is not there yet is made: the counts of each image (WORK_DIR/boundary.npz), by testing the last
checkpoint of the run on its test set.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from mmengine.config import DictAction
from tqdm import tqdm

from mmbixt.checkpoints.loader import TRUST
from mmbixt.cli import run
from mmbixt.evaluation.sums import SumsFileError
from mmbixt.report.collect import BandError, collect
from mmbixt.report.page import make_page
from mmbixt.report.work_dir import Run, WorkDirError


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/analysis/report.py work_dirs/semfpn_bixt_ti_ade20k',
    )
    parser.add_argument('work_dir', type=Path, help='of tools/train.py or tools/test.py')
    parser.add_argument(
        '--out', type=Path, metavar='FILE.html', help='the file (default: WORK_DIR/report.html)'
    )
    parser.add_argument(
        '--checkpoint', type=Path, help='weights (default: the last ones of the run)'
    )
    parser.add_argument(
        '--images', type=int, default=6, help='of the worst and of the best, at most (default: 6)'
    )
    parser.add_argument(
        '--band', help='the band that it is about (default: band3px, if it was counted)'
    )
    parser.add_argument(
        '--evaluate', action='store_true', help='count anew, even if there is a boundary.npz'
    )
    parser.add_argument(
        '--no-model',
        action='store_true',
        help='show what is there without running the model: nothing is counted, no pictures',
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        default={},
        metavar='KEY=VALUE',
        help='change settings of the config, for example where the data is now: '
        'test_dataloader.dataset.data_root=data/elsewhere',
    )
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='read checkpoints that hold more than data; whatever they ask for is executed',
    )
    args = parser.parse_args()
    if args.images < 0:
        parser.error('--images is at least 0')
    if args.no_model and (args.evaluate or args.checkpoint):
        parser.error('--evaluate and --checkpoint need the model: leave out --no-model')
    return args


def main() -> None:
    args = parse_args()
    if args.trust_checkpoint:
        os.environ[TRUST] = '1'
    out = args.out or args.work_dir / 'report.html'
    part = out.with_name(f'.{out.name}.part')
    try:
        found = Run(args.work_dir, args.cfg_options)
        out.parent.mkdir(parents=True, exist_ok=True)
        part.touch()  # a folder that cannot be written is found before the work
        data = collect(found, args, partial(tqdm, leave=False))
        if args.evaluate and data.problem and not data.counts:
            sys.exit(f'error: --evaluate: {data.problem}')
        part.write_text(make_page(data), 'utf-8')
        part.replace(out)
    except (WorkDirError, SumsFileError, BandError) as error:
        sys.exit(f'error: {error}')
    finally:
        part.unlink(missing_ok=True)
    missing = 'no pictures' if data.counts else 'no scores near boundaries, no pictures'
    for note in found.notes + ([f'{missing}: {data.problem}'] if data.problem else []):
        print(note)
    print(f'report: {out} ({out.stat().st_size / 1e6:.1f} MB)')


if __name__ == '__main__':
    run(main)

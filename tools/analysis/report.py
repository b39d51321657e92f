"""Write one HTML file about a run: training curves, scores over all pixels and near boundaries, the
worst and the best images, the config. The file is self-contained.

If the counts of each image (WORK_DIR/boundary.npz) are missing, the last checkpoint of the run is
evaluated on its test set.
"""

import mmbixt.passive_threads  # noqa: F401

import argparse
from pathlib import Path

from mmengine.config import DictAction

from mmbixt.cli import run
from mmbixt.report.data import report_data
from mmbixt.report.page import make_page
from mmbixt.report.work_dir import Run


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/analysis/report.py work_dirs/semfpn_bixt_ti_ade20k',
    )
    add = parser.add_argument
    add('work_dir', type=Path, help='of tools/train.py or tools/test.py')
    add('--out', type=Path, metavar='FILE.html', help='default: WORK_DIR/report.html')
    add('--checkpoint', type=Path, help='weights (default: the last checkpoint of the run)')
    add('--images', type=int, default=6, help='largest number of worst and of best images (6)')
    add('--band', help='the band to show (default: band3px, if it was counted)')
    add('--evaluate', action='store_true', help='count again, even if boundary.npz exists')
    text = 'change settings of the config, for example the folder of the data: '
    text += 'test_dataloader.dataset.data_root=data/elsewhere'
    add('--cfg-options', nargs='+', action=DictAction, default={}, metavar='KEY=VALUE', help=text)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    out = args.out or args.work_dir / 'report.html'
    data = report_data(Run(args.work_dir, args.cfg_options), args)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(make_page(data), 'utf-8')
    if data.problem:
        print(data.problem)
    print(f'report: {out} ({out.stat().st_size / 1e6:.1f} MB)')


if __name__ == '__main__':
    run(main)

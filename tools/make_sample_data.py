"""Make sample data: generated street, country and coast scenes with their annotations.

They come in the layouts of ADE20K (semantic segmentation) and COCO (detection, instance
segmentation), so that everything can be tried without downloading either.
"""

import argparse
import sys
from pathlib import Path

import cv2

from mmbixt.datasets import make_scene, write_sample_data
from mmbixt.datasets.preview import contact_sheet


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--out', default='data/sample', metavar='DIR', help='folder to write (default: %(default)s)'
    )
    parser.add_argument(
        '--train', type=int, default=256, metavar='N', help='training scenes (default: %(default)s)'
    )
    parser.add_argument(
        '--val', type=int, default=32, metavar='N', help='validation scenes (default: %(default)s)'
    )
    parser.add_argument(
        '--size',
        type=int,
        nargs=2,
        default=(192, 256),
        metavar=('H', 'W'),
        help='height and width of the pictures (default: 192 256)',
    )
    parser.add_argument(
        '--preview', metavar='PNG', help='also draw some of the scenes with their labels here'
    )
    args = parser.parse_args()
    if min(args.train, args.val) < 1 or min(args.size) < 32:
        parser.error('--train and --val must be at least 1, and --size at least 32 32')
    return args


def main() -> int:
    args = parse_args()
    height, width = args.size
    try:
        root = write_sample_data(args.out, args.train, args.val, height, width)
    except OSError as error:
        print(f'error: {error}', file=sys.stderr)
        return 1
    print(f'sample data: {root}')
    print(f'  for mmseg: data_root={root / "ade" / "ADEChallengeData2016"}')
    print(f'  for mmdet: data_root={root / "coco"}')
    if args.preview:
        Path(args.preview).parent.mkdir(parents=True, exist_ok=True)
        sheet = contact_sheet([make_scene(seed, height, width) for seed in range(10)])
        cv2.imwrite(args.preview, sheet[..., ::-1])
        print(f'preview: {args.preview}')
    return 0


if __name__ == '__main__':
    sys.exit(main())

"""Write sample data: generated streets and lakes with their annotations.

They have the layouts of ADE20K (semantic segmentation), COCO (detection, instance segmentation) and
ImageNet (classification), so that all configs can be tried without downloads.
"""

import argparse

from mmbixt.cli import run
from mmbixt.scenes.files import write_scenes


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, default = parser.add_argument, '(default: %(default)s)'
    add('--out', default='data/sample', metavar='DIR', help=f'folder to write {default}')
    add('--train', type=int, default=256, metavar='N', help=f'training scenes {default}')
    add('--val', type=int, default=32, metavar='N', help=f'validation scenes {default}')
    text = 'height and width of the pictures (default: 192 256)'
    add('--size', type=int, nargs=2, default=(192, 256), metavar=('H', 'W'), help=text)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    root = write_scenes(args.out, args.train, args.val, *args.size)
    print(f'sample data: {root}')
    print(f'  for mmseg: data_root={root / "ade" / "ADEChallengeData2016"}')
    print(f'  for mmdet: data_root={root / "coco"}')
    print(f'  for mmpretrain: data_root={root / "imagenet"}')


if __name__ == '__main__':
    run(main)

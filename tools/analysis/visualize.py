"""Draw the errors of a segmentor near boundaries, one picture for each image.

A picture shows image, truth, prediction, and the errors in a band around the true boundaries:
missed or moved boundaries, and predicted classes that are not near in the truth. For mmseg configs.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.errors import UserError
from mmbixt.evaluation.boundary import band_name, band_width
from mmbixt.evaluation.sums import find_sums, read_sums, unique_names
from mmbixt.report.predictions import Predictions
from mmbixt.visualization.choice import worst_images

EPILOG = """Examples:
  python tools/analysis/visualize.py CONFIG CHECKPOINT --images 20
  python tools/analysis/visualize.py CONFIG CHECKPOINT --images ADE_val_00000003 ADE_val_00000017
  python tools/test.py CONFIG CHECKPOINT --boundary   # counts the pixels of each image
  python tools/analysis/visualize.py CONFIG CHECKPOINT --worst 20"""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add_common_arguments(parser)
    add, chosen = parser.add_argument, parser.add_mutually_exclusive_group()
    add('checkpoint', help='checkpoint file')
    text = 'names of images, with or without a suffix; or a number of images, evenly spaced in the '
    text += 'data set (default: 10)'
    chosen.add_argument('--images', nargs='+', default=['10'], metavar='IMAGE', help=text)
    text = 'the N images with the lowest mIoU in the band, from the counts in --sums; of similar '
    text += 'images, such as frames of a video, one if possible'
    chosen.add_argument('--worst', type=int, metavar='N', help=text)
    text = 'for --worst: boundary.npz of tools/test.py --boundary, boundary_eval.py --sums or '
    text += 'report.py, or a folder with it (default: the work dir)'
    add('--sums', type=Path, metavar='RUN', help=text)
    text = 'of the band, in pixels (3) or as a fraction of the diagonal (0.02); default: 3'
    add('--width', type=band_width, default=3, help=text)
    text = 'data set (default: val; with --worst test, whose images the tools count)'
    add('--split', choices=['val', 'test'], help=text)
    text = 'folder of the pictures (default: WORK_DIR/boundary_errors)'
    add('--out-dir', type=Path, help=text)
    args = parser.parse_args()
    args.split = args.split or ('test' if args.worst else 'val')
    return args


def choose(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Indices of images by their names; or of a number of images, evenly spaced."""
    if len(wanted) == 1 and wanted[0].isdecimal() and wanted[0] not in names:
        count = min(int(wanted[0]), len(names))
        return [i * len(names) // count for i in range(count)]
    stems = [name if name in names else Path(name).stem for name in wanted]
    if missing := {*stems}.difference(names):
        raise UserError(
            f'The data set has no image {min(missing)}. It has {len(names):,} images: '
            f'{", ".join(names[:5])} ...'
        )
    return [names.index(name) for name in stems]


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    out_dir = args.out_dir or Path(cfg.work_dir, 'boundary_errors')
    cfg.test_dataloader = cfg[f'{args.split}_dataloader']
    images = Predictions(cfg, args.checkpoint, args.sample)
    names = unique_names(images.paths)
    if args.worst:
        counts = read_sums(find_sums(args.sums or cfg.work_dir))
        scores = images.scores(counts, counts.choose_band(band_name(args.width)))
        chosen = worst_images(scores, args.worst, images.read)
    else:
        chosen = choose(names, args.images)
    out_dir.mkdir(parents=True, exist_ok=True)
    for i in tqdm(chosen, disable=None):  # no bar in a file
        title = f'{names[i]}, {Path(args.config).stem}: errors near boundaries'
        figure = images.figure(i, images.maps(i), title, args.width)
        figure.savefig(out_dir / f'{names[i]}.png')
    print(f'{len(chosen)} pictures of {len(names):,} images: {out_dir}')


if __name__ == '__main__':
    run(main)

"""Score folders of label maps of any project, near boundaries and over all pixels.

Predictions and truths are PNG files with one channel (grey or palette, up to 16 bits) whose values
are labels. Files are paired if their paths in the two folders are the same after --pred-prefix,
--pred-suffix and --gt-suffix are removed.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import cv2
import numpy as np

# no imports of torch, which take seconds: NumPy and OpenCV are sufficient
from mmbixt.errors import UserError
from mmbixt.evaluation.boundary import RATIOS, WIDTHS, band_width, class_scores, main_band, scores
from mmbixt.evaluation.folders import (
    IGNORED,
    Pair,
    Reading,
    find_images,
    folder_sums,
    pair_files,
    read_classes,
    read_pair,
)
from mmbixt.evaluation.sums import ImageSums, write_sums
from mmbixt.evaluation.tables import aligned, class_table, main_table
from mmbixt.visualization.choice import image_scores, worst_images
from mmbixt.visualization.images import as_rgb

EPILOG = """Examples:
  python tools/analysis/boundary_eval.py predictions data/ade/ADEChallengeData2016/annotations/\
validation --classes ade20k --reduce-zero-label --sums runs/mine/boundary.npz
  python tools/analysis/boundary_eval.py predictions data/cityscapes/gtFine/val \
--classes cityscapes --pred-suffix _leftImg8bit.png --gt-suffix _gtFine_labelTrainIds.png
  python tools/analysis/boundary_eval.py predictions truths --num-classes 19 \
--worst 20 --images images --image-suffix .jpg"""

COLUMNS = 'mIoU', 'mAcc', 'aAcc', 'gap', 'mF'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add, classes = parser.add_argument, parser.add_mutually_exclusive_group(required=True)
    add('predictions', type=Path, metavar='PRED_DIR')
    add('truths', type=Path, metavar='GT_DIR')
    add('--pred-prefix', default='', help='of names of predictions (default: none)')
    add('--pred-suffix', default='.png', help='of names of predictions (default: .png)')
    add('--gt-suffix', default='.png', help='of names of truths (default: .png)')
    classes.add_argument('--num-classes', type=int, metavar='N')
    text = 'a name per line; or a data set of mmseg, such as ade20k or cityscapes'
    classes.add_argument('--classes', metavar='FILE', help=text)
    text = "in the truth 0 does not count and classes start at 1, as in ADE20K's own files"
    add('--reduce-zero-label', action='store_true', help=text)
    text = 'predicted classes start at 1, too'
    add('--pred-reduce-zero-label', action='store_true', help=text)
    add('--ignore-index', type=int, default=255, help='true label of pixels to ignore (255)')
    text = 'of bands, in pixels (3) or as fractions of the diagonal (0.02); default: 1 3 5 0.02'
    add('--widths', nargs='*', type=band_width, default=WIDTHS, help=text)
    text = 'widths for Boundary IoU, as fractions of the diagonal (default: 0.02 0.005)'
    add('--ratios', nargs='*', type=float, default=RATIOS, help=text)
    text = 'for the boundary F score, in pixels (default: none, because it is slow)'
    add('--tolerances', nargs='*', type=float, default=(), help=text)
    add('--per-class', action='store_true', help='print the scores of each class')
    add('--json', type=Path, metavar='FILE', help='write all scores')
    add('--sums', type=Path, metavar='FILE.npz', help='write counts by image')
    text = 'draw the errors near boundaries of the N images with the lowest mIoU in the band of '
    text += '3 pixels, or else in the first of --widths; needs --images'
    add('--worst', type=int, metavar='N', help=text)
    add('--images', type=Path, metavar='IMG_DIR', help='the images, for --worst')
    add('--image-suffix', default='.jpg', help='of names of images (default: .jpg)')
    text = 'folder of the pictures (default: boundary_errors)'
    add('--out-dir', type=Path, default=Path('boundary_errors'), help=text)
    add('--jobs', type=int, default=os.cpu_count(), help='processes (default: all cores)')
    args = parser.parse_args()
    if args.worst and not (args.images and args.widths):
        parser.error('--worst needs --images and one of --widths')
    return args


def make_table(means: dict[str, float]) -> str:
    """Scores of all pixels, bands, Boundary IoU and F."""
    columns = [x for x in COLUMNS if any(name.endswith(f'/{x}') for name in means)]
    rows = [['', *columns]]
    for where in dict.fromkeys(name.partition('/')[0] for name in means):
        names = [f'{where}/{what}' for what in columns]
        rows.append([where, *(f'{means[name]:.2f}' if name in means else '' for name in names)])
    return '\n'.join(aligned(rows))


def as_json(counted: ImageSums, means: dict[str, float], by_class: dict[str, np.ndarray]) -> str:
    """All scores as JSON, with null for NaN."""

    def number(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    content = dict(
        images=len(counted.images),
        classes=counted.classes,
        scores={name: number(value) for name, value in means.items()},
        class_scores={name: list(map(number, values)) for name, values in by_class.items()},
    )
    return json.dumps(content, indent=1) + '\n'


def draw_worst(
    args: argparse.Namespace,
    pairs: list[Pair],
    images: list[Path],
    reading: Reading,
    counted: ImageSums,
) -> None:
    """Write a picture of the errors of each of the worst images."""
    from mmbixt.visualization.boundary_errors import error_figure  # matplotlib takes a second

    def read(i: int) -> np.ndarray:
        return as_rgb(cv2.imread(str(images[i]), cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH))

    width = 3 if 3 in args.widths else args.widths[0]
    by_image = image_scores(counted, main_band(counted.counts))
    worst = worst_images(by_image, args.worst, read)
    print(f'errors of the {len(worst)} worst images (of those that look alike, one):')
    for rank, i in enumerate(worst, 1):
        title = f'{pairs[i].name}: errors near boundaries'
        maps = read_pair(pairs[i], reading)
        figure = error_figure(read(i), *maps, counted.classes, None, width, title, IGNORED)
        file = args.out_dir / f'{pairs[i].name}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)
        print(f'  {rank}. {file}  mIoU {by_image[i]:.1f}')


def evaluate(args: argparse.Namespace) -> None:
    """Print and write all scores."""
    pairs = pair_files(
        args.predictions, args.truths, args.pred_suffix, args.gt_suffix, args.pred_prefix
    )
    names = [pair.name for pair in pairs]
    images = find_images(args.images, args.image_suffix, names) if args.worst else []
    classes = read_classes(args.classes) if args.classes else map(str, range(args.num_classes))
    reading = Reading(args.ignore_index, args.reduce_zero_label, args.pred_reduce_zero_label)
    options = dict(widths=args.widths, ratios=args.ratios, tolerances=args.tolerances)
    counted = folder_sums(pairs, list(classes), reading, options, args.jobs)
    total = counted.total()
    means, by_class = scores(total), class_scores(total)
    occur = np.count_nonzero(~np.isnan(by_class['all/IoU']))
    about = f'{len(counted.classes)} classes, of which {occur} occur'
    print(f'{len(counted.images):,} images, {about}; percentages\n')
    print(f'{main_table({"": means})}\n\n{make_table(means)}')
    if args.per_class:
        shown = [name for name in by_class if not name.endswith('/Acc')]
        columns = {name.rpartition('/')[0]: by_class[name] for name in shown}
        title = 'IoU (boundaryF: F)' if args.tolerances else 'IoU'
        print(f'\n{title}\n{class_table(counted.classes, columns)}')
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(as_json(counted, means, by_class))
        print(f'\nscores: {args.json}')
    if args.sums:
        write_sums(args.sums, counted)
        print(f'\ncounts of every image: {args.sums}')
    if args.worst:
        print()
        draw_worst(args, pairs, images, reading, counted)


def main() -> None:
    try:
        evaluate(parse_args())
    except UserError as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    main()

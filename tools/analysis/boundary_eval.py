"""Score folders of label maps of any project, near boundaries and over all pixels.

Predictions and truths are PNG files with one channel (grey or palette, up to 16 bits) whose values
are labels. Files are paired if their paths in the two folders are the same after --pred-prefix,
--pred-suffix and --gt-suffix are removed.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import cv2
import numpy as np

# no imports of torch, which take seconds: NumPy and OpenCV are sufficient
from mmbixt.evaluation.boundary import (
    RATIOS,
    WIDTHS,
    band_width,
    class_scores,
    main_band,
    ratio_pixels,
    scores,
)
from mmbixt.evaluation.folders import (
    LabelFilesError,
    Pair,
    Reading,
    WorkerKilledError,
    check_pairs,
    find_images,
    folder_sums,
    labels,
    pair_files,
    read_classes,
    shift_hint,
    size_text,
)
from mmbixt.evaluation.sums import ImageSums, write_sums
from mmbixt.evaluation.tables import aligned, class_table, headline
from mmbixt.files import written_whole
from mmbixt.progress import progress
from mmbixt.visualization.choice import image_scores, worst_images

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
    add, classes = parser.add_argument, parser.add_mutually_exclusive_group()
    add('predictions', type=Path, metavar='PRED_DIR')
    add('truths', type=Path, metavar='GT_DIR')
    add('--pred-prefix', default='', help='of names of predictions (default: none)')
    add('--pred-suffix', default='.png', help='of names of predictions (default: .png)')
    add('--gt-suffix', default='.png', help='of names of truths (default: .png)')
    classes.add_argument('--num-classes', type=int, metavar='N')
    text = 'a name per line; or ade20k or cityscapes'
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
    if args.num_classes is None and args.classes is None:  # after options that do not exist
        parser.error('one of --num-classes and --classes is required')
    if args.jobs < 1 or (args.num_classes is not None and args.num_classes < 1):
        parser.error('--jobs and --num-classes must be at least 1')
    if not all(0 < x < 1 for x in args.ratios):
        parser.error('--ratios are fractions of the diagonal, between 0 and 1')
    if not all(x > 0 for x in args.tolerances):
        parser.error('--tolerances must be above 0')
    if args.sums and args.sums.suffix != '.npz':
        parser.error(f'--sums {args.sums}: the name must end with .npz')
    if (args.worst is None) != (args.images is None):
        parser.error('--worst N needs --images IMG_DIR, and --images is for --worst')
    if args.worst is not None and (args.worst < 1 or not args.widths):
        parser.error('--worst must be at least 1, and needs one of --widths')
    pictures = args.out_dir / 'x.png' if args.worst else None
    for option, path in (('json', args.json), ('sums', args.sums), ('out-dir', pictures)):
        if problem := write_problem(path):
            parser.error(f'--{option} {path}: {problem}')
    return args


def write_problem(path: Path | None) -> str | None:
    """Why a file cannot be written, or None; checked before the computation."""
    if path is None:
        return None
    if path.is_dir():
        return 'this is a folder'
    if path.parent == Path('/dev') and os.access(path, os.W_OK):
        return None
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    if not folder.is_dir():
        return f'{folder} is a file'
    return None if os.access(folder, os.W_OK) else f'no permission to write into {folder}'


def count(
    args: argparse.Namespace, pairs: list[Pair], reading: Reading
) -> tuple[ImageSums, tuple[int, int], list[str]]:
    """Counts of all images, the most common image size (H,W), and warnings."""
    names = read_classes(args.classes) if args.classes else map(str, range(args.num_classes))
    names = list(names)
    # another class may be left out on purpose
    is_doubtful = reading.ignore_index == 255 or reading.reduce_truth
    if is_doubtful and 0 <= reading.ignore_index < len(names):
        raise LabelFilesError(
            f'--ignore-index {reading.ignore_index} (by default 255) is the label of one of the '
            f'{len(names)} classes; give a label that is none, such as 65535'
        )
    size = check_pairs(pairs)
    options = dict(widths=args.widths, ratios=args.ratios, tolerances=args.tolerances)
    with progress(total=len(pairs)) as bar:
        counted = folder_sums(pairs, names, reading, options, args.jobs, bar.update)
    hints = [shift_hint(pairs, reading)]
    if args.classes == 'ade20k' and not args.reduce_zero_label:
        hints.append("ADE20K's own files number classes from 1: if yours do, --reduce-zero-label.")
    return counted, size, [hint for hint in hints if hint]


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
        image = cv2.imread(str(images[i]))
        if image is None:
            raise LabelFilesError(f'{images[i]} is not an image that OpenCV can read')
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)

    width = 3 if 3 in args.widths else args.widths[0]
    found = image_scores(counted, main_band(counted.counts))
    worst = worst_images(found, args.worst, read)
    others = len(
        {*args.out_dir.rglob('*.png')} - {args.out_dir / f'{pairs[i].name}.png' for i in worst}
    )
    for i in progress(worst):
        name, image = pairs[i].name, read(i)
        truth, prediction = labels(pairs[i], reading)
        about = counted.classes, None, width, f'{name}: errors near boundaries'
        try:
            figure = error_figure(image, truth, prediction, *about, reading.ignore_index)
        except ValueError as error:  # another size
            raise LabelFilesError(f'{images[i]}: {error}') from error
        file = args.out_dir / f'{name}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file)
    print(
        f'errors of the {len(worst)} worst images (of those that look alike, one): {args.out_dir}'
    )
    for rank, i in enumerate(worst, 1):
        print(f'  {rank}. {pairs[i].name}  mIoU {found[i]:.1f}')
    if others:
        print(f'{args.out_dir} has {others} other PNG files, perhaps of an earlier evaluation.')


def make_table(found: dict[str, float], size: tuple[int, int]) -> str:
    """Scores of all pixels, bands, Boundary IoU and F; widths in pixels for images (H,W)."""
    columns = [x for x in COLUMNS if any(name.endswith(f'/{x}') for name in found)]
    rows = [['', *columns, '']]
    for where in dict.fromkeys(name.partition('/')[0] for name in found):
        names = [f'{where}/{what}' for what in columns]
        cells = [f'{found[name]:.2f}' if name in found else '' for name in names]
        rows.append([where, *cells, _pixels(where, size)])
    return '\n'.join(aligned(rows))


def _pixels(where: str, size: tuple[int, int]) -> str:
    """A note of the width in pixels of a fraction of the diagonal; '' for widths in pixels."""
    if where == 'all' or where.endswith('px'):
        return ''
    share = where.removeprefix('band').removeprefix('boundary')
    return f'{share}: {ratio_pixels(float(share), size)} px at {size_text(size)}'


def as_json(counted: ImageSums, found: dict[str, float], by_class: dict[str, np.ndarray]) -> str:
    """All scores as JSON, with null for NaN."""

    def number(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    content = dict(
        images=len(counted.images),
        classes=counted.classes,
        scores={name: number(value) for name, value in found.items()},
        class_scores={name: list(map(number, values)) for name, values in by_class.items()},
    )
    return json.dumps(content, indent=1)


def evaluate(args: argparse.Namespace) -> None:
    """Print and write all scores."""
    pairs = pair_files(
        args.predictions, args.truths, args.pred_suffix, args.gt_suffix, args.pred_prefix
    )
    names = [pair.name for pair in pairs]
    images = find_images(args.images, args.image_suffix, names) if args.worst else []
    reading = Reading(args.ignore_index, args.reduce_zero_label, args.pred_reduce_zero_label)
    counted, size, hints = count(args, pairs, reading)
    total = counted.total()
    found, by_class = scores(total), class_scores(total)
    for hint in hints:
        print(f'warning: {hint}\n', file=sys.stderr, flush=True)
    occur = np.count_nonzero(~np.isnan(by_class['all/IoU']))
    classes = f'{len(counted.classes)} classes, of which {occur} occur'
    print(f'{len(counted.images):,} images, {classes}; percentages\n')
    print(f'{headline({"": found})}\n\n{make_table(found, size)}')
    if args.per_class:
        shown = [name for name in by_class if not name.endswith('/Acc')]
        columns = {name.rpartition('/')[0]: by_class[name] for name in shown}
        title = 'IoU (boundaryF: F)' if args.tolerances else 'IoU'
        print(f'\n{title}\n{class_table(counted.classes, columns)}')
    if args.json or args.sums or args.worst:
        print()
    if args.json:
        with written_whole(args.json) as part:
            part.write_text(as_json(counted, found, by_class) + '\n')
        print(f'scores: {args.json}')
    if args.sums:
        write_sums(args.sums, **vars(counted))
        print(f'counts of every image: {args.sums}')
    if args.worst:
        draw_worst(args, pairs, images, reading, counted)


def stop(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt(number)


def main() -> None:
    args = parse_args()
    # raise an error instead of ending at once, so that worker processes are ended, too
    signal.signal(signal.SIGTERM, stop)
    try:
        evaluate(args)
    except (LabelFilesError, WorkerKilledError, OSError) as error:
        sys.exit(f'error: {error}')
    except KeyboardInterrupt as interrupt:
        print('Stopped.', file=sys.stderr)
        sys.exit(128 + next(iter(interrupt.args), signal.SIGINT))


if __name__ == '__main__':
    main()

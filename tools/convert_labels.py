"""Write label maps for mmseg: PNG files with one channel, with ids from 0, and 255 where none is.

If the file of classes has colours, with lines such as 'sky 128 128 128', the pictures are read as
colours; otherwise as ids. Colours and ids that are no classes become 255, which does not count, and
are listed, at most 20, with their numbers of pixels.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from mmbixt.cli import run
from mmbixt.errors import UserError
from mmbixt.evaluation.folders import read_class_file, read_labels
from mmbixt.predict.files import image_files

IGNORED, SHOWN = 255, 20  # most ids or colours that are listed


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/convert_labels.py colours labels --classes classes.txt',
    )
    add = parser.add_argument
    add('labels', type=Path, help='a folder')
    add('out', type=Path, help='a new folder, for files of the same names')
    text = 'a name per line, in the order of the new ids, and perhaps red, green and blue'
    add('--classes', required=True, metavar='FILE', help=text)
    text = 'ids that do not count, which are not listed'
    add('--ignore', type=int, nargs='+', default=[], metavar='ID', help=text)
    return parser.parse_args()


def read_codes(file: Path, has_colours: bool) -> np.ndarray:
    """The ids (H,W) in a file, or its colours as numbers 0xRRGGBB."""
    if not has_colours:
        return read_labels(file)
    with Image.open(file) as picture:
        if picture.format == 'JPEG':
            raise UserError(f'{file} is a JPEG file, whose colours are not exact.')
        return np.asarray(picture.convert('RGB'), np.int32) @ (1 << 16, 1 << 8, 1)


def main() -> None:
    args = parse_args()
    names, colours = read_class_file(args.classes)
    codes = [r << 16 | g << 8 | b for r, g, b in colours] if colours else [*range(len(names))]
    if len({*codes}) < len(codes):
        raise UserError(f'{args.classes}: two classes have one colour.')
    if args.out.exists():
        raise FileExistsError(f'{args.out} exists.')
    ignored = set() if colours else {IGNORED, *args.ignore}
    new_ids = {code: i for i, code in enumerate(codes) if code not in ignored}
    pixels, files, first = Counter(), Counter(), {}  # of those that are no classes
    found = image_files([str(args.labels)])
    for file, name in tqdm(found.items(), disable=None):
        old = read_codes(file, bool(colours))
        values, places, counts = np.unique(old, return_inverse=True, return_counts=True)
        new = np.uint8([new_ids.get(value, IGNORED) for value in values.tolist()])
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            if value not in new_ids and value not in ignored:
                pixels[value] += count
                files[value] += 1
                first.setdefault(value, file)
        path = args.out / name.with_suffix('.png')
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(new[places].reshape(old.shape)).save(path)
    print(f'{len(found):,} label maps: {args.out}')
    if pixels:
        print('These are no classes and became 255, which does not count:')
    for value, count in pixels.most_common(SHOWN):
        what = f'{value >> 16} {value >> 8 & 255} {value & 255}' if colours else f'id {value}'
        print(f'  {what}: {count:,} pixels in {files[value]:,} files, first in {first[value]}')


if __name__ == '__main__':
    run(main)

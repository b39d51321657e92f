"""Draw test images, their nuclei and those that a network found: best and worst of each kind."""

import argparse
import json
import sys
from pathlib import Path

import cv2
import numpy as np
from matplotlib.figure import Figure
from pycocotools import mask as rle

from mmbixt.cli import run
from mmbixt.config import PROJECTS
from mmbixt.visualization.palette import distinct_palette

sys.path.append(str(PROJECTS / 'nuclei'))
from table import counts, images_of

KINDS = 'fluorescence', 'purple tissue', 'pale tissue', 'large, grey'
COLOURS = distinct_palette(24)
SIDE = 360  # pixels of an image that are shown, or four times as many


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('predictions', type=Path, help='predictions.segm.json of a test')
    parser.add_argument('--data', type=Path, default='data/nuclei', help='(data/nuclei)')
    parser.add_argument('--out', type=Path, default='nuclei.jpg', help='(nuclei.jpg)')
    return parser.parse_args()


def kind_of(image: np.ndarray) -> str:
    if max(image.shape) > 1000:
        return KINDS[3]
    if image.mean() < 100:
        return KINDS[0]
    saturation = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)[..., 1].mean()
    return KINDS[1] if saturation > 25 else KINDS[2]


def draw(image: np.ndarray, objects: list[dict]) -> np.ndarray:
    """The image (H,W,3) with each object and its border in a colour."""
    drawn = image.copy()
    for i, x in enumerate(objects):
        mask, colour = rle.decode(x['segmentation']), COLOURS[i % len(COLOURS)]
        inside = mask > 0
        drawn[inside] = (0.6 * drawn[inside] + 0.4 * colour).astype(np.uint8)
        borders, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(drawn, borders, -1, colour.tolist(), 1)
    return drawn


def middle(image: np.ndarray) -> np.ndarray:
    """The square in the middle."""
    side = min(*image.shape[:2], 2 * SIDE if max(image.shape) > 1000 else SIDE)
    y, x = ((n - side) // 2 for n in image.shape[:2])
    return image[y : y + side, x : x + side]


def main() -> None:
    args = parse_args()
    truths = json.loads((args.data / 'test.json').read_text())
    examples = {kind: [] for kind in KINDS}
    for about, objects, found in images_of(truths, json.loads(args.predictions.read_text())):
        image = cv2.imread(str(args.data / 'test' / about['file_name']))[..., ::-1]
        matched, *others = counts(objects, found)
        score = matched / (matched + sum(others))
        examples[kind_of(image)].append((score, image, objects, found))
    figure = Figure(figsize=(12, 8.6), layout='constrained')
    axes = figure.subplots(len(KINDS), 6)
    for row, (kind, images) in zip(axes, examples.items(), strict=True):
        images.sort(key=lambda x: x[0])
        for i, (score, image, *both) in enumerate((images[-1], images[0])):
            panels = [image, *(draw(image, objects) for objects in both)]
            titles = f'{kind}, {("best", "worst")[i]}', 'truth', f'found: {score:.2f}'
            for ax, panel, title in zip(row[3 * i :], panels, titles, strict=False):
                ax.imshow(middle(panel))
                ax.set_title(title, fontsize=8)
                ax.axis('off')
    figure.savefig(args.out, dpi=130, pil_kwargs=dict(quality=80))


if __name__ == '__main__':
    run(main)

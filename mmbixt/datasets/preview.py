"""Contact sheets of scenes: the picture, its label map and its instances side by side."""

import colorsys

import cv2
import numpy as np

from mmbixt.datasets.classes import ADE_COLOURS, ADE_LABELS
from mmbixt.datasets.scenes import Scene

_LEGEND_WIDTH = 110


def contact_sheet(scenes: list[Scene]) -> np.ndarray:
    """An even number of scenes, two in a row, and a legend, as an RGB picture."""
    triples = [np.concatenate([s.image, _labels(s), _instances(s)], axis=1) for s in scenes]
    columns = [np.concatenate(triples[first::2], axis=0) for first in (0, 1)]
    sheet = np.concatenate(columns, axis=1)
    return np.concatenate([sheet, _legend(len(sheet), scenes)], axis=1)


def _labels(scene: Scene) -> np.ndarray:
    colours = np.zeros((256, 3), np.uint8)
    for name, label in ADE_LABELS.items():
        colours[label] = ADE_COLOURS[name]
    return cv2.addWeighted(scene.image, 0.3, colours[scene.semantic], 0.7, 0)


def _instances(scene: Scene) -> np.ndarray:
    picture = scene.image // 2
    for number, instance in enumerate(scene.instances):
        colour = np.array(colorsys.hsv_to_rgb(number * 0.618 % 1, 0.7, 1.0)) * 255
        mask = instance.mask
        picture[mask] = (0.5 * scene.image[mask] + 0.5 * colour).astype(np.uint8)
        rows, columns = np.nonzero(mask)
        corner = int(columns.min()), int(rows.min())
        cv2.rectangle(picture, corner, (int(columns.max()), int(rows.max())), colour.tolist(), 1)
        _write(picture, instance.category, (corner[0] + 2, max(corner[1] - 3, 9)))
    return picture


def _legend(height: int, scenes: list[Scene]) -> np.ndarray:
    """The classes that occur, with their colours, from top to bottom."""
    picture = np.full((height, _LEGEND_WIDTH, 3), 30, np.uint8)
    present = set(np.unique([scene.semantic for scene in scenes]).tolist())
    names = [name for name, label in ADE_LABELS.items() if label in present]
    step = min(16, height // max(len(names), 1))
    for row, name in enumerate(names):
        y = 4 + row * step
        picture[y : y + step - 4, 6:20] = ADE_COLOURS[name]
        _write(picture, name, (26, y + step - 6))
    return picture


def _write(picture: np.ndarray, text: str, corner: tuple[int, int]) -> None:
    font = cv2.FONT_HERSHEY_SIMPLEX
    cv2.putText(picture, text, corner, font, 0.34, (0, 0, 0), 2, cv2.LINE_AA)
    cv2.putText(picture, text, corner, font, 0.34, (255, 255, 255), 1, cv2.LINE_AA)

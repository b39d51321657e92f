"""Colours for label maps: of generated scenes, where ADE20K has many similar greens, or of any."""

from collections.abc import Sequence

import cv2
import numpy as np

_COLOURS = {
    'building': (200, 90, 80),
    'sky': (120, 190, 255),
    'tree': (20, 120, 40),
    'road': (110, 110, 120),
    'grass': (130, 210, 60),
    'sidewalk': (220, 180, 230),
    'person': (230, 25, 75),
    'car': (0, 70, 200),
    'water': (0, 150, 170),
    'boat': (120, 0, 120),
}


def scene_palette(classes: Sequence[str], palette: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """A palette (RGB), with other colours for the classes of the generated scenes."""
    return [_COLOURS.get(*pair) for pair in zip(classes, palette, strict=True)]


def distinct_palette(count: int) -> np.ndarray:
    """Colours (count,3) that differ from white and as much as possible from one another."""
    levels = np.linspace(20, 240, 12, dtype=np.float32)
    colours = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(-1, 3)
    lab = cv2.cvtColor(colours[None] / 255, cv2.COLOR_RGB2Lab)[0]  # distances as they are seen
    chosen, distance = [], np.linalg.norm(lab - (100, 0, 0), axis=1)
    for _ in range(count):
        chosen.append(distance.argmax())
        distance = np.minimum(distance, np.linalg.norm(lab - lab[chosen[-1]], axis=1))
    return colours[chosen].astype(np.uint8)

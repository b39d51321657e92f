"""Generated pictures with labels, so that everything here can be tried without a download.

A scene is a pure function of a seed: a place (street, meadow, coast, ...) under some light, with
people, cars, animals, boats and more in it, the label of every pixel and a mask for every thing.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from mmbixt.datasets.backdrop import paint_sky
from mmbixt.datasets.canvas import Canvas
from mmbixt.datasets.classes import UNLABELLED
from mmbixt.datasets.countryside import coast, farm, lake, meadow
from mmbixt.datasets.light import make_light
from mmbixt.datasets.stage import Stage
from mmbixt.datasets.town import park, street_across, street_along
from mmbixt.datasets.view import View

#: Goes up whenever a seed gives another picture than before.
VERSION = 1

PLACES = (street_across, meadow, coast, street_along, farm, lake, park)

#: What is left to see of a hidden thing does not count below this share of the picture.
MIN_VISIBLE = 0.0012


@dataclass(frozen=True)
class Instance:
    """One visible thing.

    Attributes:
        category: Name of the COCO category.
        mask: (H, W) bool, its visible part.
    """

    category: str
    mask: np.ndarray


@dataclass(frozen=True)
class Scene:
    """A picture and what is in it.

    Attributes:
        image: (H, W, 3) uint8 RGB.
        semantic: (H, W) uint8, label of ADE20K from 1 to 150, or 0 for none.
        instances: The things from back to front; their masks do not overlap.
    """

    image: np.ndarray
    semantic: np.ndarray
    instances: list[Instance]


def make_scene(seed: int, height: int = 192, width: int = 256) -> Scene:
    """Make a scene; the same arguments always give the same one.

    Seeds that follow one another show all kinds of places in turn.

    Args:
        seed: 0 to 2**32 - 1.
    """
    # the streams of RandomState are frozen for good, those of default_rng may change with numpy
    rng = np.random.RandomState(seed)
    canvas = Canvas(height, width)
    view = View(rng, canvas)
    light = make_light(rng)
    stage = Stage(rng, canvas, view, light)
    paint_sky(rng, canvas, view, light)
    PLACES[seed % len(PLACES)](stage)
    if rng.rand() < 0.35:
        stage.fly()
    stage.perform()
    semantic, instances = _annotate(canvas)
    return Scene(_photograph(rng, canvas.small_pixels()), semantic, instances)


def _annotate(canvas: Canvas) -> tuple[np.ndarray, list[Instance]]:
    owner = canvas.small_owner()
    labels = np.array([segment.label for segment in canvas.segments], np.uint8)
    visible = np.bincount(owner.ravel(), minlength=len(labels))
    instances = []
    for number, segment in enumerate(canvas.segments):
        if segment.category is None or not visible[number]:
            continue
        if visible[number] < MIN_VISIBLE * owner.size:
            labels[number] = UNLABELLED
        else:
            instances.append(Instance(segment.category, owner == number))
    return labels[owner], instances


def _photograph(rng: np.random.RandomState, pixels: np.ndarray) -> np.ndarray:
    """What a camera makes of the light: exposure, vignette, blur and noise."""
    height, width = pixels.shape[:2]
    y, x = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)[None]
    exposure = rng.uniform(0.88, 1.12) * (1 - rng.uniform(0, 0.12) * (x**2 + y**2))
    balance = rng.uniform(0.95, 1.05, 3)
    picture = pixels * (exposure[..., None] * balance).astype(np.float32)
    picture = np.clip(picture, 0, 1) ** rng.uniform(0.85, 1.1)
    blur = rng.uniform(0.0, 0.7)
    if blur > 0.3:
        picture = cv2.GaussianBlur(picture, (0, 0), blur)
    picture = picture + rng.standard_normal(picture.shape) * rng.uniform(0.004, 0.022)
    return (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)

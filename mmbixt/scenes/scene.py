"""Generated pictures of streets and lakes, with a label map and a mask of each object."""

from typing import NamedTuple

import cv2
import numpy as np

from mmbixt.scenes.drawing import FINE, Canvas, mix, noise, vary
from mmbixt.scenes.objects import ObjectPainter

VERSION = 4  # of the files; to be raised when a seed gives another picture, or other files
MIN_VISIBLE = 0.0012  # part of the picture that an object with a label must cover
_STUFF = dict(building=2, sky=3, tree=5, road=7, grass=10, sidewalk=12, water=22)
ADE_LABELS = dict(**_STUFF, person=13, car=21, boat=77)  # values in ADE20K's annotation files
# objects of COCO -> similar classes of ImageNet: groom, sports car, yawl
COCO_TO_IMAGENET = dict(person=982, car=817, boat=914)
LAKESIDE = 975  # class of ImageNet

_GROUNDS = {  # colours; strength of noise, and its pixels per metre and per log of the distance
    'grass': ([(0.30, 0.46, 0.16), (0.46, 0.50, 0.22), (0.22, 0.40, 0.18)], 0.17, 33, 54),
    'road': ([(0.30, 0.30, 0.32), (0.40, 0.40, 0.41), (0.36, 0.33, 0.31)], 0.07, 33, 180),
    'sidewalk': ([(0.62, 0.60, 0.57), (0.70, 0.66, 0.60), (0.62, 0.52, 0.46)], 0.06, 25, 135),
    'water': ([(0.10, 0.32, 0.46), (0.12, 0.38, 0.40), (0.20, 0.34, 0.36)], 0.12, 4, 86),
}


class Scene(NamedTuple):
    image: np.ndarray  # RGB (H,W,3)
    semantic: np.ndarray  # ADE20K's label map (H,W)
    instances: list[tuple[str, np.ndarray]]  # COCO's categories, disjoint masks (H,W)


def make_scene(seed: int, height: int = 192, width: int = 256) -> Scene:
    """Generate a scene from a seed: a lake from odd ones, a street from even ones."""
    # RandomState gives the same numbers in all versions of numpy; default_rng may not
    rng = np.random.RandomState(seed)
    place = _Place(rng, height, width)
    place.paint_sky()
    objects = place.lake() if seed % 2 else place.street()
    for depth, x, name in sorted(objects):  # the far ones first
        ObjectPainter(place, name, x, depth)
    place.reflect()

    owner = place.owner[FINE // 2 :: FINE, FINE // 2 :: FINE]
    labels = np.uint8([ADE_LABELS[name] for name in place.names])
    large = np.bincount(owner.ravel(), minlength=len(labels)) >= MIN_VISIBLE * owner.size
    is_object = np.isin(place.names, list(COCO_TO_IMAGENET))
    labels[is_object & ~large] = 0  # no class
    instances = [(place.names[k], owner == k) for k in np.flatnonzero(is_object & large)]

    # exposure and noise of a camera
    picture = cv2.resize(place.pixels, (width, height), interpolation=cv2.INTER_AREA)
    picture *= rng.uniform(0.8, 1.15) * np.float32(rng.uniform(0.93, 1.07, 3))
    picture += rng.standard_normal(picture.shape) * 0.01
    return Scene((np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8), labels[owner], instances)


def imagenet_class(scene: Scene) -> int:
    """The class of ImageNet of a scene: that of its largest object, or lakeside without objects."""
    category, _ = max(scene.instances, key=lambda found: found[1].sum(), default=('', None))
    return COCO_TO_IMAGENET.get(category, LAKESIDE)


class _Place(Canvas):
    """Paints a place. ``street`` and ``lake`` return depth, x (both 0 to 1) and name of objects."""

    def paint_sky(self) -> None:
        altitude = np.clip(1 - self.y / self.horizon, 0, 1)
        u, v = 128 * self.x / self.height / (0.25 + altitude), 90 / (0.25 + altitude)
        clouds = noise(1.7, u + self.rng.uniform(0, 256), v) + self.rng.uniform(-1.6, 0.4)
        cover = np.clip(1.4 * clouds, 0, 0.92) * np.clip(5 * altitude, 0, 1)
        air = vary(self.rng, (0.68, 0.83, 0.94), (0.98, 0.77, 0.50))
        zenith = vary(self.rng, (0.20, 0.44, 0.80), (0.36, 0.48, 0.68))
        sky = mix(mix(air, zenith, altitude**0.7), (0.9, 0.88, 0.86), cover)
        self.paint('sky', altitude >= 0, sky)

    def paint_ground(self, name: str, where: np.ndarray, pattern=1.0) -> None:
        """Paint the part of the ground in a mask (h,w); a pattern (h,w) scales the light."""
        colours, strength, metre, distance = _GROUNDS[name]
        u, v = self.across * metre + self.rng.uniform(0, 256), np.log(self.scale) * distance
        light = np.clip(1 + strength * noise(0.5, u, v), 0.4, 1.7) * pattern
        light *= 1 + 0.1 * noise(1.5, u * 0.2, v * 0.5)
        where = where & (self.y >= self.horizon)
        self.paint(name, where, vary(self.rng, *colours) * light[..., None])

    def row(self, name: str, count: int, *depths: float) -> list[tuple[float, float, str]]:
        """Objects side by side, at random depths between two."""
        x = (np.arange(count) + self.rng.rand(count)) / max(count, 1)
        return [*zip(self.rng.uniform(*depths, count), x, [name] * count, strict=True)]

    def street(self) -> list[tuple[float, float, str]]:
        """Two sidewalks with a road between them, in front of buildings and trees."""
        middle, number = self.rng.uniform(0.24, 0.29), self.rng.randint
        joints = (self.across % 0.7 < 0.06) | (0.5 * self.height / self.scale % 0.7 < 0.06)
        self.paint_ground('sidewalk', self.depth > 0, 1 - 0.3 * joints * np.sqrt(self.depth))
        from_middle = np.abs(middle / self.depth - 1)
        dashes = (self.across % 3 < 1.5) & (from_middle < 0.02)
        self.paint_ground('road', from_middle < 0.5, 1 + 1.3 * dashes)
        return [
            *self.row('building', number(5, 10), middle * 0.35, middle * 0.4),
            *self.row('tree', number(1, 6), middle * 0.45, middle * 0.6),
            *self.row('car', number(1, 4), middle * 0.75, middle * 1.7),
            *self.row('person', number(1, 6), middle * 2, 1),
        ]

    def lake(self) -> list[tuple[float, float, str]]:
        """Water between trees on a far shore and grass."""
        (far, near), number = self.rng.uniform((0.04, 0.4), (0.09, 0.7)), self.rng.randint
        self.paint_ground('grass', self.depth > 0)
        shore = near + 0.03 * noise(1.8, self.x * 0.4 + self.rng.uniform(0, 256), 0)
        self.paint_ground('water', (self.depth > far) & (self.depth < shore))
        return [
            *self.row('tree', number(5, 25), far * 0.6, far),
            *self.row('boat', number(0, 5), far + 0.05, near * 0.9),
            *self.row('person', number(0, 5), near + 0.08, 1),
        ]

    def reflect(self) -> None:
        """Mirror in the water what is above it."""
        water = np.array(self.names)[self.owner] == 'water'
        shore = int(water.any(1).argmax())
        below = slice(shore, min(2 * shore, self.height))
        amount = np.linspace(0.75, 0.2, below.stop - shore)[:, None] * water[below]
        mirrored = self.pixels[2 * shore - below.stop : shore][::-1]
        self.pixels[below] = mix(self.pixels[below], mirrored, amount)

"""Generated pictures of places and objects, with a label map and a mask of each object."""

from typing import NamedTuple

import cv2
import numpy as np

from mmbixt.sample.drawing import FINE, Canvas, mix, noise, vary
from mmbixt.sample.objects import ObjectPainter

VERSION = 3  # of the files; to be raised when a seed gives another picture, or other files
MIN_VISIBLE = 0.0012  # part of the picture that an object with a label must cover
# values in ADE20K's annotation files; 'animal' is that of all objects which are not here
_STUFF = dict(building=2, sky=3, tree=5, road=7, grass=10, sidewalk=12, earth=14, mountain=17)
ADE_LABELS = dict(**_STUFF, water=22, sand=47, person=13, car=21, boat=77, animal=127)
# objects of COCO -> similar classes of ImageNet: sports car, yawl, Labrador, sorrel, ram, ox, groom
COCO_TO_IMAGENET = dict(car=817, boat=914, dog=208, horse=339, sheep=348, cow=345, person=982)

_GROUNDS = {  # colours; strength and roughness of noise, metres per noise pixel, flatness
    'grass': ([(0.30, 0.46, 0.16), (0.46, 0.50, 0.22), (0.22, 0.40, 0.18)], 0.17, 0.5, 0.03, 0.6),
    'earth': ([(0.46, 0.34, 0.22), (0.38, 0.28, 0.20), (0.55, 0.40, 0.27)], 0.22, 0.9, 0.05, 2.0),
    'sand': ([(0.84, 0.74, 0.54), (0.78, 0.70, 0.56), (0.74, 0.62, 0.44)], 0.06, 0.3, 0.02, 2.0),
    'road': ([(0.30, 0.30, 0.32), (0.40, 0.40, 0.41), (0.36, 0.33, 0.31)], 0.07, 0.3, 0.03, 2.0),
    'sidewalk': ([(0.62, 0.60, 0.57), (0.70, 0.66, 0.60), (0.62, 0.52, 0.46)], 0.06, 0.6, 0.04, 2),
    'water': ([(0.10, 0.32, 0.46), (0.12, 0.38, 0.40), (0.20, 0.34, 0.36)], 0.12, 0.8, 0.25, 8.0),
}
_OBJECTS = {  # objects that may stand on a ground; '' for none
    'grass': ['cow', 'sheep', 'horse', 'dog', 'person', 'person'],
    'earth': ['cow', 'sheep', 'horse', 'person'],
    'sand': ['person', 'person', 'dog'],
    'road': ['car'],
    'sidewalk': ['person', 'person', 'dog'],
    'water': ['boat', ''],
}
_HEIGHTS = dict(person=1.75, car=1.5, boat=5, dog=0.9, horse=2, sheep=1.1, cow=1.6)


class Scene(NamedTuple):
    image: np.ndarray  # RGB (H,W,3)
    semantic: np.ndarray  # ADE20K's label map (H,W)
    instances: list[tuple[str, np.ndarray]]  # COCO's categories, disjoint masks (H,W)


def make_scene(seed: int, height: int = 192, width: int = 256) -> Scene:
    """Generate a scene from a seed; three successive seeds show the three kinds of places."""
    # RandomState gives the same numbers in all versions of numpy; default_rng may not
    rng = np.random.RandomState(seed)
    place = _Place(rng, height, width)
    place.paint_sky()
    # of the rows of buildings and of trees: depth, least number, limit of the number
    depths, low, high = (place.street, place.country, place.shore)[seed % 3]()
    rows = zip(('building', 'tree'), depths, rng.randint(low, high), strict=True)
    objects = [(depth, (k + rng.rand()) / n, name) for name, depth, n in rows for k in range(n)]
    for depth, x, name in sorted(objects + place.free_objects()):  # the far ones first
        ObjectPainter(place, name, x, depth)
    place.reflect()

    owner = place.owner[FINE // 2 :: FINE, FINE // 2 :: FINE]
    labels = np.uint8([ADE_LABELS.get(name, ADE_LABELS['animal']) for name in place.names])
    large = np.bincount(owner.ravel(), minlength=len(labels)) >= MIN_VISIBLE * owner.size
    is_object = np.isin(place.names, list(COCO_TO_IMAGENET))
    labels[is_object & ~large] = 0  # no class
    instances = [(place.names[k], owner == k) for k in np.flatnonzero(is_object & large)]

    # exposure and noise of a camera
    picture = cv2.resize(place.pixels, (width, height), interpolation=cv2.INTER_AREA)
    picture *= rng.uniform(0.85, 1.15) * np.float32(rng.uniform(0.95, 1.05, 3))
    picture += rng.standard_normal(picture.shape) * rng.uniform(0.004, 0.022)
    return Scene((np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8), labels[owner], instances)


def imagenet_class(scene: Scene) -> int:
    """The class of ImageNet of a scene: that of its largest object, or valley without objects."""
    category, _ = max(scene.instances, key=lambda found: found[1].sum(), default=('', None))
    return COCO_TO_IMAGENET.get(category, 979)


class _Place(Canvas):
    def paint_sky(self) -> None:
        y, x = self.grid
        altitude = np.clip(1 - y / self.horizon, 0, 1)
        u, v = 128 * x / self.height / (0.25 + altitude), 90 / (0.25 + altitude)
        clouds = noise(1.7, u + self.rng.uniform(0, 256), v)
        cover = np.clip((clouds + self.rng.uniform(-1.6, 0.4)) * 1.4, 0, 0.92)
        white = mix(self.tint * 0.95, self.tint * 0.65, np.clip(clouds / 2, 0, 1))
        sky = mix(self.air, self.zenith, altitude**0.7)
        sky = mix(sky, white, cover * np.clip(altitude * 5, 0, 1))
        self.paint('sky', altitude >= 0, sky / self.tint)

    def paint_hills(self) -> None:
        """Paint mountains and, in front of them, grass."""
        y, x = self.grid[:, : self.horizon + 3]
        rock = vary(self.rng, (0.22, 0.34, 0.18), (0.34, 0.36, 0.40), (0.42, 0.36, 0.28))
        top = self.rng.uniform(0.25, 0.6) * self.horizon
        for near in (0.5, 1):
            crest = noise(1.6, x * 0.4 + self.rng.uniform(0, 256), 0)
            below = y - self.horizon + np.maximum(top * (1.1 - 0.6 * near) * (1 + 0.4 * crest), 4)
            spurs = np.tanh(1.5 * noise(1.7, x * 0.8 + below, below * 0.5 + 180 * near))
            colour = rock * (1 + 0.24 * spurs[..., None])
            self.paint('mountain', below >= 0, colour, self.haze * (1.4 - 0.8 * near))
        self.paint_ground('grass')

    def paint_ground(self, name: str, where=True, pattern=1.0) -> None:
        """Paint the ground, or the part in a mask (n,w); a pattern (n,w) scales the light."""
        colours, strength, roughness, metres, flatness = _GROUNDS[name]
        u, v = self.across / metres + self.rng.uniform(0, 256), np.log(self.scale) * 2.7 / metres
        light = np.clip(1 + strength * noise(roughness, u, v * flatness), 0.4, 1.7) * pattern
        light *= 1 + 0.1 * noise(1.5, u * 0.2, v * 0.5)
        haze = self.haze * np.clip(1 - 6 * self.depth, 0, 1)
        colour = vary(self.rng, *colours) * light[..., None]
        self.paint(name, where & (light > 0), colour, haze, top=self.horizon)

    def reflect(self) -> None:
        water = np.array([*self.names])[self.owner] == 'water'
        shore = int(water.any(1).argmax())
        below = slice(shore, min(2 * shore, self.height))
        amount = np.linspace(0.75, 0.2, below.stop - shore)[:, None] * water[below]
        mirrored = self.pixels[2 * shore - below.stop : shore][::-1]
        self.pixels[below] = mix(self.pixels[below], mirrored, amount)

    def free_objects(self) -> list[tuple[float, float, str]]:
        """Depth, x and name of random objects that fit the ground, at most one in a column."""
        chosen = {}
        for column, depth in zip([*range(6)] * 2, self.rng.uniform(0.06, 1, 12), strict=True):
            x, row = (column + self.rng.rand()) / 6, int(depth * (len(self.y) - 1))
            ground = self.names[self.owner[self.horizon + row, int(x * self.width)]]
            name = str(self.rng.choice(_OBJECTS.get(ground, [''])))
            if _HEIGHTS.get(name, 0) * self.scale[row, 0] > 0.1 * self.height:
                chosen[column] = (depth, x, name)
        return list(chosen.values())

    def street(self) -> tuple[tuple, tuple, tuple]:
        """Two sidewalks, or a sidewalk and grass, with a road between them."""
        self.town, middle = True, self.rng.uniform(0.24, 0.29)
        joints = (self.across % 0.7 < 0.06) | (self.away * 0.5 % 0.7 < 0.06)
        seen = np.clip(self.scale / 30 - 0.3, 0, 1)
        self.paint_ground('sidewalk', pattern=1 - 0.3 * joints * seen)
        self.paint_ground('grass', self.depth > self.rng.uniform(0.7, 1.2))
        across = np.abs(middle / self.depth - 1)
        dashes = (self.across % 3 < 1.5) & (across < 0.02)
        self.paint_ground('road', across < 0.5, 1 + 1.3 * dashes)
        return (middle * 0.35, middle * 0.5), (5, 1), (10, 6)

    def country(self) -> tuple[tuple, tuple, tuple]:
        """Grass below mountains, with a path or a field of earth."""
        self.paint_hills()
        if self.rng.rand() < 0.5:
            furrows = 0.24 * np.sin(7 * self.across) * np.clip(self.scale / 9, 0, 1)
            where = self.depth + self.uneven > self.rng.uniform(0.1, 0.4)
            self.paint_ground('earth', where, 1 + furrows)
        else:
            width, left, bend, pace = self.rng.uniform((0.7, -2, 0.5, 4), (1.4, 2, 2, 9))
            from_path = self.across - left - bend * np.sin(self.away / pace)
            self.paint_ground('earth', np.abs(from_path) < width)
        return (0.07, 0.12), (0, 2), (5, 9)

    def shore(self) -> tuple[tuple, tuple, tuple]:
        """Water between mountains and a near shore of sand, grass or earth."""
        self.paint_hills()
        far, near = self.rng.uniform((0.04, 0.4), (0.09, 0.7))
        self.paint_ground('water', self.depth > far)
        inland = self.depth + self.uneven - near
        wet = 0.4 / (1 + (inland * 60) ** 4)
        self.paint_ground(self.rng.choice(['sand', 'sand', 'grass', 'earth']), inland > 0, 1 + wet)
        return (far * 0.7, far * 0.9), (0, 0), (4, 12)

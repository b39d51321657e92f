"""Generated shapes of labelled parts: planes, tables, lamps with a sphere; for ``--sample``."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mmengine.dataset import BaseDataset

from mmbixt.registry import DATASETS
from projects.points.datasets import CATEGORIES, PARTS, ShapeNetPart

RNG = np.random.RandomState
SEEDS = dict(train=1, trainval=1, val=1_000_000_001, test=1_000_000_001)  # of the first shape
COUNTS = dict(train=256, trainval=256, val=32, test=32)
CLASSES = dict(Airplane=0, Lamp=19, Table=33)  # of ModelNet40, in alphabetical order


def box(rng: RNG, count: int, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (count,3) on the surface of a box around the origin, and their normals."""
    areas = size.prod() / size  # of the faces across each axis
    axis = rng.choice(3, count, p=areas / areas.sum())
    normals = np.eye(3)[axis] * rng.choice([-1, 1], (count, 1))
    return np.where(normals, normals, rng.uniform(-1, 1, (count, 3))) * size / 2, normals


def ellipsoid(rng: RNG, count: int, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    directions = rng.standard_normal((count, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    normals = directions / size
    return directions * size / 2, normals / np.linalg.norm(normals, axis=1, keepdims=True)


# A piece: its part among those of the category, its surface, its centre and its size in x, y, z;
# y is up.
Piece = tuple[int, Callable, tuple, tuple]


def airplane(rng: RNG) -> list[Piece]:
    """A body along x, two wings, a tail of two boards, and an engine below each wing."""
    length, width, chord = 2, rng.uniform(0.2, 0.35), rng.uniform(0.25, 0.5)
    span, place = rng.uniform(1.2, 2.2), rng.uniform(-0.2, 0.2)
    under, apart = -width / 2 - 0.1, rng.uniform(0.2, 0.35) * span
    pieces = [(0, ellipsoid, (0, 0, 0), (length, width, width))]
    for side in (-1, 1):
        pieces.append((1, box, (place, 0, side * span / 4), (chord, 0.04, span / 2)))
        pieces.append((3, ellipsoid, (place, under, side * apart), (0.4, 0.15, 0.15)))
    pieces.append((2, box, (-0.9, 0.2, 0), (0.25, 0.4, 0.03)))
    return [*pieces, (2, box, (-0.9, rng.choice([0.0, 0.4]), 0), (0.2, 0.03, 0.7))]


def table(rng: RNG) -> list[Piece]:
    """A board on four legs, with a bar between these."""
    wide, deep, high = rng.uniform((0.8, 0.6, 0.4), (2, 1.2, 1.4))
    thick, leg, middle = rng.uniform((0.05, 0.05, 0.2), (0.15, 0.15, 0.6))
    pieces = [(0, box, (0, high, 0), (wide, thick, deep))]
    for x in (-1, 1):
        for z in (-1, 1):
            place = (x * (wide - leg) / 2, high / 2, z * (deep - leg) / 2)
            pieces.append((1, box, place, (leg, high, leg)))
    return [*pieces, (2, box, (0, middle * high, 0), (wide, leg, leg))]


def lamp(rng: RNG) -> list[Piece]:
    """A sphere on a pole with a foot and a knob, upright or hanging."""
    high, shade, foot = rng.uniform((0.8, 0.3, 0.3), (1.8, 0.8, 0.8))
    up = rng.choice([-1, 1])
    return [
        (0, box, (0, 0, 0), (foot, 0.08, foot)),
        (1, box, (0, up * high / 2, 0), (0.06, high, 0.06)),
        (2, ellipsoid, (0, up * high, 0), (shade, shade, shade)),
        (3, ellipsoid, (0, up * rng.uniform(0.2, 0.6) * high, 0), (0.2, 0.2, 0.2)),
    ]


def make_shape(seed: int, count: int) -> dict[str, Any]:
    """A shape of a random pose around the upright axis, from a seed; as the data sets have it."""
    rng = RNG(seed)
    name, pieces = [('Airplane', airplane), ('Table', table), ('Lamp', lamp)][seed % 3]
    category, pieces = [*CATEGORIES].index(name), pieces(rng)
    sizes = np.array([size for *_, size in pieces])
    areas = (sizes.prod(1, keepdims=True) / sizes).sum(1)  # of the boxes around them
    counts = rng.multinomial(count, areas / areas.sum())
    surfaces = [
        (points + centre, normals, np.full(n, PARTS[category][part]))
        for (part, surface, centre, size), n in zip(pieces, counts, strict=True)
        for points, normals in [surface(rng, n, np.array(size))]
    ]
    points, normals, parts = map(np.concatenate, zip(*surfaces, strict=True))
    turn = rng.uniform(0, 2 * np.pi)
    rotation = np.array(
        [[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]]
    )
    order = rng.permutation(count)
    points = np.hstack((points @ rotation, normals @ rotation))[order].astype(np.float32)
    return dict(points=points, parts=parts[order], category=category, label=CLASSES[name])


@DATASETS.register_module()
class SampleShapes(BaseDataset):
    """Generated shapes in place of ModelNet40 and ShapeNetPart, of three of their classes.

    Args:
        split, normals: as of these data sets.
        form: has no effect here.
        num_points: N.
        kwargs: arguments of mmengine's ``BaseDataset``.
    """

    METAINFO = ShapeNetPart.METAINFO

    def __init__(
        self,
        split: str,
        normals: bool = False,
        form: str = 'text',
        num_points: int = 256,
        **kwargs: Any,
    ) -> None:
        self.split, self.normals, self.num_points = split, normals, num_points
        super().__init__(**kwargs)

    def load_data_list(self) -> list[dict]:
        return [dict(seed=SEEDS[self.split] + i) for i in range(COUNTS[self.split])]

    def get_data_info(self, idx: int) -> dict:
        shape = make_shape(super().get_data_info(idx)['seed'], self.num_points)
        return dict(shape, points=shape['points'][:, : 6 if self.normals else 3])

"""Transforms of shapes: dicts with ``points`` (N,3), or (N,6) with normals, and ``parts`` (N,)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mmbixt.registry import TRANSFORMS

Shape = dict[str, Any]


@TRANSFORMS.register_module()
class SamplePoints:
    """A fixed number of points: random ones in random order, or the first ones.

    A shape with fewer points repeats some.
    """

    def __init__(self, num_points: int, random: bool) -> None:
        self.num_points, self.random = num_points, random

    def __call__(self, shape: Shape) -> Shape:
        count = len(shape['points'])
        order = np.random.permutation(count) if self.random else np.arange(count)
        chosen = np.resize(order, self.num_points)
        per_point = {key: shape[key][chosen] for key in ('points', 'parts') if key in shape}
        return {**shape, **per_point}


@TRANSFORMS.register_module()
class UnitSphere:
    """Move the mean of the points to the origin, and the farthest point to distance 1."""

    def __call__(self, shape: Shape) -> Shape:
        places, normals = np.split(shape['points'], [3], axis=1)
        places = places - places.mean(axis=0)
        places = places / np.linalg.norm(places, axis=1).max()
        return {**shape, 'points': np.hstack((places, normals))}


@TRANSFORMS.register_module()
class ScaleAndShift:
    """Multiply each axis with a random factor, and shift it.

    The defaults are those of PointMLP's code. Normals stay as they are.
    """

    def __init__(self, factors: Sequence[float] = (2 / 3, 3 / 2), shift: float = 0.2) -> None:
        self.factors, self.shift = factors, shift

    def __call__(self, shape: Shape) -> Shape:
        points = shape['points'].copy()
        points[:, :3] *= np.random.uniform(*self.factors, 3)
        points[:, :3] += np.random.uniform(-self.shift, self.shift, 3)
        return {**shape, 'points': points}


@TRANSFORMS.register_module()
class DropPoints:
    """Replace points by the first one: each with a probability that is drawn up to ``max_ratio``.

    The default is that of PointNet++'s code.
    """

    def __init__(self, max_ratio: float = 0.875) -> None:
        self.max_ratio = max_ratio

    def __call__(self, shape: Shape) -> Shape:
        keep = np.arange(len(shape['points']))
        keep[np.random.rand(len(keep)) < np.random.rand() * self.max_ratio] = 0
        per_point = {key: shape[key][keep] for key in ('points', 'parts') if key in shape}
        return {**shape, **per_point}


@TRANSFORMS.register_module()
class PackPoints:
    """Keep the arguments of a model: the points in float32, and ``keys`` as integers."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys

    def __call__(self, shape: Shape) -> Shape:
        integers = {key: np.asarray(shape[key], np.int64) for key in self.keys}
        return dict(points=np.asarray(shape['points'], np.float32), **integers)

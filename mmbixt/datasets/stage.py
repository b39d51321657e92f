"""Where things stand: collects the objects of a place and draws them from back to front."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mmbixt.datasets import animals, structures, things
from mmbixt.datasets.canvas import Canvas
from mmbixt.datasets.light import Light
from mmbixt.datasets.pen import Pen
from mmbixt.datasets.view import View

#: A thing that is lower than this part of the picture is not worth learning from.
MIN_HEIGHT = 0.09
#: How much of the box of the smaller of two things the other one may cover.
MAX_OVERLAP = 0.4


@dataclass(frozen=True)
class Kind:
    """A way to draw a thing: its COCO category and its size in metres."""

    category: str
    draw: Callable
    width: float
    height: float


KINDS = {
    'person': Kind('person', things.person, 0.8, 1.8),
    'car side': Kind('car', things.car_side, 4.3, 1.5),
    'car end': Kind('car', things.car_end, 1.9, 1.5),
    'sailing boat': Kind('boat', things.sailing_boat, 6.0, 7.4),
    'motor boat': Kind('boat', things.motor_boat, 6.3, 3.0),
    'bench': Kind('bench', things.bench, 2.0, 1.0),
    'dog': Kind('dog', animals.dog, 1.3, 0.9),
    'horse': Kind('horse', animals.horse, 2.4, 1.95),
    'sheep': Kind('sheep', animals.sheep, 1.4, 1.05),
    'cow': Kind('cow', animals.cow, 2.6, 1.6),
}


class Stage:
    """What a place is built with, and the objects put there so far."""

    def __init__(self, rng: np.random.RandomState, canvas: Canvas, view: View, light: Light):
        self.rng, self.canvas, self.view, self.light = rng, canvas, view, light
        self._queue: list[tuple[float, Callable[[], None]]] = []
        self._boxes: list[tuple[float, float, float, float]] = []

    def put(self, name: str, depths, across: Callable | None = None, count: int = 1) -> None:
        """Place up to ``count`` things of a kind where they do not hide one another.

        Args:
            name: A key of ``KINDS``.
            depths: Lowest and highest depth of the ground to stand on, 0 to 1.
            across: ``across() -> metres`` to the right of the camera; anywhere if left out.
        """
        kind, rng, view = KINDS[name], self.rng, self.view
        lowest = view.horizon + view.eye * MIN_HEIGHT * view.height / kind.height
        for _ in range(count):
            for _ in range(12):
                y = max(view.row(rng.uniform(*depths)), lowest)
                scale = view.scale_at(y)
                x = rng.uniform(0.02, 0.98) * view.width
                if across is not None:
                    x = view.vanishing + across() * scale
                half, height = kind.width * scale / 2, kind.height * scale
                if self._claim((x - half, y - height, x + half, y)):
                    self._enqueue_thing(kind, x, y, scale)
                    break

    def fly(self) -> None:
        """Place an airplane in the sky."""
        rng, view = self.rng, self.view
        scale = view.width * rng.uniform(0.24, 0.46) / 12
        x, y = rng.uniform(0.15, 0.85) * view.width, rng.uniform(0.12, 0.45) * view.horizon
        kind = Kind('airplane', things.airplane, 12, 4)
        self._enqueue_thing(kind, x, y, scale, depth=0, angle=rng.uniform(-0.1, 0.35))

    def stand(self, name: str, x: float, y: float, *size) -> None:
        """Place a building, a tree or a fence with its foot at pixel (x, y).

        Args:
            size: In metres, as the function of that name in ``structures`` takes it.
        """
        draw = getattr(structures, name)
        scale = self.view.scale_at(y)

        def act():
            owner = self.canvas.add_stuff(name)
            pen = Pen(self.canvas, self.light, owner, (x, y), scale, haze=self._haze(y))
            if name != 'building':
                pen.shadow(0.5 * size[0], 0.8 * size[-1] if name == 'tree' else 1.0)
            draw(pen, self.rng, *size)

        self._queue.append((y, act))

    def perform(self) -> None:
        """Draw everything that was placed since the last time, the far things first."""
        for _, act in sorted(self._queue, key=lambda entry: entry[0]):
            act()
        self._queue.clear()

    def _enqueue_thing(self, kind: Kind, x, y, scale, depth=None, angle=0.0) -> None:
        flip = self.rng.rand() < 0.5

        def act():
            owner = self.canvas.add_thing(kind.category)
            pen = Pen(
                self.canvas,
                self.light,
                owner,
                (x, y),
                scale,
                flip=flip,
                angle=angle,
                haze=self._haze(y) if depth is None else 0.5 * self.light.haze,
            )
            if depth is None:
                pen.shadow(kind.width * 0.9, kind.height)
            kind.draw(pen, self.rng)

        self._queue.append((y if depth is None else depth, act))

    def _haze(self, y: float) -> float:
        nearness = (y - self.view.horizon) / (self.view.height - self.view.horizon)
        return self.light.haze * 0.8 * max(0.0, 1 - 5 * nearness)

    def _claim(self, box) -> bool:
        """Reserve a box (left, top, right, bottom) unless it covers too much of another."""
        left, top, right, bottom = box
        if right < 0.06 * self.view.width or left > 0.94 * self.view.width:
            return False
        for other in self._boxes:
            width = min(right, other[2]) - max(left, other[0])
            height = min(bottom, other[3]) - max(top, other[1])
            smaller = min(
                (right - left) * (bottom - top), (other[2] - other[0]) * (other[3] - other[1])
            )
            if width > 0 and height > 0 and width * height > MAX_OVERLAP * smaller:
                return False
        self._boxes.append(box)
        return True

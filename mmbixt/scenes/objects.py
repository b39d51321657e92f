"""Drawing of objects: coordinates in metres from their feet, fronts to the right."""

import cv2
import numpy as np

from mmbixt.scenes.drawing import Canvas, noise, vary

_PAINTS = [(0.72, 0.12, 0.12), (0.14, 0.28, 0.58), (0.84, 0.85, 0.86), (0.14, 0.15, 0.17)]
_WALLS = [(0.62, 0.36, 0.28), (0.78, 0.72, 0.60), (0.55, 0.57, 0.60), (0.42, 0.52, 0.62)]
_LEAVES = [(0.20, 0.36, 0.14), (0.28, 0.42, 0.16), (0.36, 0.44, 0.18), (0.62, 0.40, 0.14)]
_BROWNS = [(0.24, 0.17, 0.13), (0.40, 0.27, 0.17), (0.62, 0.44, 0.28), (0.86, 0.70, 0.57)]
_BLACK, _GREY, _GLASS = (0.08, 0.08, 0.09), (0.6, 0.6, 0.58), (0.28, 0.36, 0.44)


class ObjectPainter:
    """Draws an object at ``x`` and ``depth``, both 0 to 1."""

    def __init__(self, canvas: Canvas, name: str, x: float, depth: float):
        row = canvas.horizon + int(depth * (canvas.height - canvas.horizon - 1))
        self.canvas, self.rng = canvas, canvas.rng
        self.foot = np.array([x * canvas.width, row])
        self.axes = np.array([self.rng.choice([-1, 1]), -1]) * canvas.scale[row, 0]
        canvas.names.append(name)
        getattr(self, name)()
        self.finish(grain=0.25 if name == 'tree' else 0.03)

    def polygon(self, colour, *points) -> None:
        outline = [np.int32((np.array(points) * self.axes + self.foot) * 16)]
        cv2.fillPoly(self.canvas.pixels, outline, np.float64(colour).tolist(), shift=4)
        cv2.fillPoly(self.canvas.owner, outline, len(self.canvas.names) - 1, shift=4)

    def box(self, colour, left, bottom, right, top) -> None:
        self.polygon(colour, (left, bottom), (right, bottom), (right, top), (left, top))

    def limb(self, colour, start, end, *widths) -> None:
        """Fill a bar with round ends; ``widths`` are those of its start and its end."""
        start, end = np.array(start), np.array(end)
        turn = np.arctan2(*(end - start)[::-1]) + np.linspace(-0.5, 0.5, 9) * np.pi
        tip = np.stack([np.cos(turn), np.sin(turn)], -1) / 2
        self.polygon(colour, *(end + widths[-1] * tip), *(start - widths[0] * tip))

    def finish(self, grain: float) -> None:
        """Add light from the right and noise to the object, and a shadow to the ground."""
        canvas, drawn = self.canvas, self.canvas.owner == len(self.canvas.names) - 1
        left, top, width, height = cv2.boundingRect(drawn.view(np.uint8))
        area = np.s_[top : top + height + width // 4, max(0, left - width // 2) : left + 2 * width]
        x, y = canvas.x[area] - left, canvas.y[area] - top
        u, v = 2 * x / width - 1, 12 * (y + top - self.foot[1]) / width
        light = 1.1 + 0.15 * u - 0.2 * y / height
        light *= 1 + grain * np.clip(noise(0.6, x / 2, y / 2), -2, 2)
        shadow = 1 - 0.5 / (1 + u**4 + v**4)
        canvas.pixels[area] *= np.where(drawn[area], light, shadow)[..., None]

    def person(self) -> None:
        shirt, trousers = self.rng.uniform(0.05, 0.9, 3), self.rng.uniform(0.05, 0.7, 3)
        skin, (stride, swing) = vary(self.rng, *_BROWNS), self.rng.uniform(0.05, 0.35, 2)
        for x, tone in ((-stride, 0.8), (stride, 1.0)):
            self.limb(trousers * tone, (0, 0.86), (x, 0.1), 0.24, 0.12)
            self.limb(_BLACK, (x, 0.05), (x + 0.14, 0.05), 0.1)
        self.polygon(shirt, (-0.18, 0.8), (0.18, 0.8), (0.22, 1.4), (0, 1.5), (-0.2, 1.4))
        self.limb(skin, (0.06, 1.36), (0.12 + swing, 0.9), 0.13, 0.1)
        self.limb(_BROWNS[0], (0, 1.66), (0, 1.68), 0.27)
        self.limb(skin, (0.02, 1.46), (0.04, 1.63), 0.12, 0.21)

    def car(self) -> None:
        paint, (roof, rear) = vary(self.rng, *_PAINTS), self.rng.uniform((1.4, -1.9), (1.75, -1.5))
        self.polygon(paint, (0.55, roof), (rear + 0.45, roof), (rear, 0.95), (1.2, 0.94))
        self.polygon(_GLASS, (0.5, roof - 0.1), (rear + 0.55, roof - 0.1), (rear + 0.25, 1), (1, 1))
        self.polygon(paint, (2.15, 0.3), (2.1, 0.8), (1.2, 0.95), (-2.15, 0.95), (-2.15, 0.3))
        for x in (-1.35, 1.35):
            self.limb(_BLACK, (x, 0.34), (x, 0.34), 0.72)
            self.limb(_GREY, (x, 0.34), (x, 0.34), 0.4)

    def boat(self) -> None:
        sail = vary(self.rng, _PAINTS[0], _PAINTS[2])
        self.limb(_BLACK, (0.2, 0.5), (0.2, 7.4), 0.16)
        self.polygon(sail, (0.05, 1.1), (0.05, 7.2), (-1.4, 3.6), (-2.7, 1.2))
        self.polygon(sail * 0.92, (0.4, 1), (0.4, 6.4), (1.6, 3.2), (2.8, 0.9))
        hull = vary(self.rng, *_PAINTS)
        self.polygon(hull, (-2.9, 0.9), (3.4, 1.2), (2.5, -0.15), (-2.5, -0.15))

    def building(self) -> None:
        wall, floors, bays = vary(self.rng, *_WALLS), self.rng.randint(1, 8), self.rng.randint(3, 6)
        self.box(wall, 0, -0.1, 2.2 * bays, 3 * floors + 1)
        self.box(wall * 0.8, -0.4, 3 * floors + 1, 2.2 * bays + 0.4, 3 * floors + 1.8)
        for left, bottom in np.array([*np.ndindex(bays, floors)]) * (2.2, 3):
            self.box(wall * 1.3, left + 0.4, bottom + 1, left + 1.8, bottom + 2.8)
            self.box(_GLASS, left + 0.55, bottom + 1.15, left + 1.65, bottom + 2.65)

    def tree(self) -> None:
        height, leaves = self.rng.uniform(5, 9), vary(self.rng, *_LEAVES)
        self.limb(_BROWNS[1], (0, 0), (0, height / 2), height * 0.06, height * 0.03)
        for level in self.rng.permutation(40) / 40:  # height of a clump of leaves in the crown
            reach = 0.28 * np.sin(np.pi * (0.1 + 0.8 * level))
            spot = np.array([self.rng.uniform(-reach, reach), 0.3 + 0.62 * level]) * height
            tone, size = self.rng.uniform((0.7, 0.1), (1.2, 0.2))
            self.limb(leaves * tone, spot, spot, size * height)

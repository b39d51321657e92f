"""Drawing of objects: coordinates in metres from their feet, fronts to the right."""

import cv2
import numpy as np

from mmbixt.sample.drawing import Canvas, mix, noise, vary

_PAINTS = [(0.72, 0.12, 0.12), (0.14, 0.28, 0.58), (0.84, 0.85, 0.86), (0.14, 0.15, 0.17)]
_WALLS = [(0.62, 0.36, 0.28), (0.78, 0.72, 0.60), (0.55, 0.57, 0.60), (0.42, 0.52, 0.62)]
_LEAVES = [(0.20, 0.36, 0.14), (0.28, 0.42, 0.16), (0.36, 0.44, 0.18), (0.62, 0.40, 0.14)]
_BROWNS = [(0.24, 0.17, 0.13), (0.40, 0.27, 0.17), (0.62, 0.44, 0.28), (0.86, 0.70, 0.57)]
_BLACK, _WHITE = np.array((0.07, 0.07, 0.08)), np.array((0.88, 0.86, 0.82))
# length of the legs and of the back, thickness of the body, vectors from the chest to the head,
# from the head to the muzzle, and from the back to the end of the tail
_ANIMALS = {
    'dog': (0.40, 0.60, 0.32, (0.20, 0.26), (0.20, -0.05), (-0.26, 0.28)),
    'sheep': (0.38, 0.66, 0.62, (0.36, 0.18), (0.18, -0.16), (-0.20, -0.20)),
    'cow': (0.66, 1.50, 0.76, (0.56, 0.24), (0.26, -0.22), (-0.44, -0.70)),
    'horse': (0.92, 1.15, 0.58, (0.46, 0.60), (0.32, -0.30), (-0.36, -0.60)),
}


class ObjectPainter:
    """Draws an object at ``x`` and ``depth``, both 0 to 1."""

    def __init__(self, canvas: Canvas, name: str, x: float, depth: float):
        row = int(depth * (len(canvas.y) - 1))
        self.canvas, self.rng, self.name = canvas, canvas.rng, name
        self.scale, self.haze = canvas.scale[row, 0], 0.8 * canvas.haze * max(0, 1 - 5 * depth)
        self.foot = np.array([x * canvas.width, canvas.y[row, 0]])
        self.axes = np.array([self.rng.choice([-1, 1]), -1]) * self.scale
        canvas.names.append(name)
        getattr(self, name, self.animal)()
        self.finish(grain={'tree': 0.25, 'sheep': 0.15}.get(name, 0.03))

    def polygon(self, colour, *points) -> None:
        outline = [np.int32((np.array(points) * self.axes + self.foot) * 16)]
        colour = mix(np.asarray(colour) * self.canvas.tint, self.canvas.air, self.haze)
        cv2.fillPoly(self.canvas.pixels, outline, colour.tolist(), shift=4)
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
        """Add light and noise to the object, and a shadow to the ground around it."""
        canvas, drawn = self.canvas, self.canvas.owner == len(self.canvas.names) - 1
        left, top, width, height = cv2.boundingRect(drawn.view(np.uint8))
        rows = slice(top, top + height + width // 4)
        columns = slice(max(0, left - width // 2), left + width + width // 2)
        drawn, (y, x) = drawn[rows, columns], canvas.grid[:, rows, columns]
        light = 1 + grain * np.clip(noise(0.6, (x - left) / 2, (y - top) / 2), -2, 2)
        u, v = 2 * (x - left) / width - 1, 1 - 2 * (y - top) / height
        light *= 1 + 0.2 * (u * canvas.sun[0] + v * canvas.sun[1])
        v = 12 * (y - self.foot[1]) / width
        shadow = 1 - canvas.shade / (1 + (u + 0.4 * canvas.sun[0]) ** 4 + v**4)
        canvas.pixels[rows, columns] *= np.where(drawn, light, shadow)[..., None]

    def animal(self) -> None:
        legs, length, body, head, muzzle, tail = _ANIMALS[self.name]
        coat = vary(self.rng, *([_WHITE, _BLACK * 4] if self.name == 'sheep' else _BROWNS[:3]))
        back, chest = np.array([(-length / 2, legs + body / 2), (length / 2, legs + body / 2)])
        for x in (back[0], chest[0]):
            for lean, tone in ((self.rng.uniform(-0.2, 0), 0.6), (self.rng.uniform(0, 0.2), 0.9)):
                foot = (x + lean * legs, 0.04)
                self.limb(coat * tone, (x, legs + 0.1), foot, body * 0.36, body * 0.2)
        self.limb(coat * 0.5, back - (0.1, -body * 0.3), back + tail, body * 0.2)
        self.limb(coat, back, chest, body)
        if self.name == 'cow':
            self.limb(_WHITE, back * (0.3, 1), chest * (0.1, 1), body * 0.98)
        head = chest + head
        self.limb(coat, chest, head, body * 0.8, body * 0.45)
        self.limb(coat * 0.8, head, head + muzzle, body * 0.45, body * 0.3)
        self.limb(coat * 0.5, head, head - (0.1, -body * 0.3), body * 0.2, body * 0.1)

    def person(self) -> None:
        shirt, trousers = self.rng.uniform(0.05, 0.9, 3), self.rng.uniform(0.05, 0.7, 3)
        skin, (stride, swing) = vary(self.rng, *_BROWNS), self.rng.uniform(0.05, 0.35, 2)
        self.limb(shirt * 0.8, (0, 1.38), (-swing, 0.88), 0.12)
        for x, tone in ((-stride, 0.8), (stride, 1.0)):
            self.limb(trousers * tone, (0, 0.86), (x, 0.1), 0.24, 0.12)
            self.limb(_BLACK * 2, (x, 0.05), (x + 0.14, 0.05), 0.1)
        self.polygon(shirt, (-0.18, 0.8), (0.18, 0.8), (0.22, 1.4), (0, 1.5), (-0.2, 1.4))
        self.limb(skin, (0.06, 1.36), (0.12 + swing, 0.9), 0.13, 0.1)
        self.limb(vary(self.rng, *_BROWNS[:2]) * 0.6, (0, 1.66), (0, 1.68), 0.27)
        self.limb(skin, (0.02, 1.46), (0.04, 1.63), 0.12, 0.21)

    def car(self) -> None:
        paint, (roof, rear) = vary(self.rng, *_PAINTS), self.rng.uniform((1.4, -1.9), (1.75, -1.5))
        front = (2.15, 0.3), (2.18, 0.62), (2, 0.82), (1.2, 0.94), (0.55, roof)
        self.polygon(paint, *front, (rear + 0.45, roof), (rear, 0.98), (-2.15, 0.92), (-2.15, 0.3))
        panes = (1, 0.96), (0.5, roof - 0.1), (rear + 0.55, roof - 0.1), (rear + 0.25, 0.96)
        self.polygon((0.36, 0.46, 0.54), *panes)
        for x in (-1.35, 1.35):
            self.limb(_BLACK, (x, 0.34), (x, 0.34), 0.72)
            self.limb(_WHITE * 0.7, (x, 0.34), (x, 0.34), 0.4)

    def boat(self) -> None:
        sail, hull = vary(self.rng, _WHITE, _WHITE, _PAINTS[0]), vary(self.rng, *_PAINTS)
        self.limb(_BLACK * 3, (0.2, 0.5), (0.2, 7.4), 0.16)
        self.polygon(sail, (0.05, 1.1), (0.05, 7.2), (-1.4, 3.6), (-2.7, 1.2))
        self.polygon(sail * 0.92, (0.4, 1), (0.4, 6.4), (1.6, 3.2), (2.8, 0.9))
        self.polygon(hull, (-2.9, 0.9), (3.4, 1.2), (2.5, -0.15), (-2.5, -0.15))

    def building(self) -> None:
        floors, bays = self.rng.randint(1, 8 if self.canvas.town else 3), self.rng.randint(3, 6)
        wall, half, height = vary(self.rng, *_WALLS), bays * 1.1, floors * 3 + 1
        roof, ridge = (wall * 0.8, half) if floors > 2 else (vary(self.rng, *_BROWNS[:2]), half / 2)
        top, eaves = height + 0.8 + (half - ridge), half + 0.4
        self.box(wall, -half, -0.1, half, height)
        self.polygon(roof, (-eaves, height), (eaves, height), (ridge, top), (-ridge, top))
        for x, y in np.ndindex(bays, floors):
            left, bottom = x * 2.2 - half, y * 3
            lit = self.rng.rand() < (0.4 if self.canvas.dusk else 0.03)
            self.box(wall * 1.3, left + 0.4, bottom + 1, left + 1.8, bottom + 2.8)
            glass = (1.4, 1.1, 0.7) if lit else (0.24, 0.3, 0.38)
            self.box(glass, left + 0.55, bottom + 1.15, left + 1.65, bottom + 2.65)

    def tree(self) -> None:
        height, leaves = self.rng.uniform(5, 9), vary(self.rng, *_LEAVES)
        trunk, conifer = vary(self.rng, *_BROWNS[:3]), self.rng.rand() < 0.3
        self.limb(trunk, (0, 0), (0, height / 2), height * 0.06, height * 0.03)
        for level in self.rng.permutation(40) / 40:  # height of a clump of leaves in the crown
            reach = 0.8 * (1 - level) if conifer else np.sin(np.pi * (0.1 + 0.8 * level))
            side, size = self.rng.uniform(-reach, reach), self.rng.uniform(0.1, 0.2)
            light = self.rng.uniform(0.85, 1.05) + 0.3 * self.canvas.sun @ (side, level - 0.5)
            spot = np.array([side * 0.28, 0.3 + 0.62 * level]) * height
            self.limb(leaves * light, spot, spot, size * height)

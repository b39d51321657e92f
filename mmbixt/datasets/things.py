"""The things that are told apart one by one: people, cars, boats, benches and airplanes."""

import numpy as np

from mmbixt.datasets.pen import Pen
from mmbixt.datasets.textures import mix, pick, vary

_SKINS = [(0.92, 0.74, 0.62), (0.78, 0.56, 0.42), (0.55, 0.38, 0.28), (0.36, 0.24, 0.18)]
_HAIR = [(0.12, 0.09, 0.08), (0.34, 0.22, 0.13), (0.70, 0.54, 0.30), (0.55, 0.52, 0.50)]
_LACQUERS = [
    *[(0.72, 0.12, 0.12), (0.14, 0.28, 0.58), (0.84, 0.85, 0.86), (0.14, 0.15, 0.17)],
    *[(0.52, 0.54, 0.57), (0.18, 0.40, 0.26), (0.82, 0.66, 0.20), (0.44, 0.60, 0.74)],
]
_WOODS = [(0.50, 0.34, 0.20), (0.36, 0.26, 0.18), (0.62, 0.48, 0.32), (0.26, 0.38, 0.30)]
_RUBBER = np.array((0.07, 0.07, 0.08))
_GLASS = (0.20, 0.28, 0.36)


def _clothes(rng) -> np.ndarray:
    """Any colour, bright or dull."""
    grey = rng.uniform(0.1, 0.85)
    return mix(np.full(3, grey), rng.uniform(0.05, 0.9, 3), rng.uniform(0.2, 1.0))


def person(pen: Pen, rng) -> None:
    """1.75 m tall, standing or walking."""
    skin, shirt, trousers = pick(rng, _SKINS), _clothes(rng), _clothes(rng) * 0.8
    stride, swing = rng.uniform(0.05, 0.32), rng.uniform(0.05, 0.4)
    shoulders = np.array((0.03, 1.42))
    bare = rng.rand() < 0.3
    pen.limb(shoulders - (0, 0.03), (-swing, 0.88), (0.13, 0.1), skin if bare else shirt * 0.85)
    for x, tone in ((-stride, 0.85), (stride, 1.0)):
        knee = np.array((0.55 * x + 0.06, 0.46))
        pen.limb((0.05 * np.sign(x), 0.86), knee, (0.22, 0.16), trousers * tone)
        pen.limb(knee, (x, 0.08), (0.16, 0.11), trousers * tone)
        pen.limb((x, 0.05), (x + 0.14, 0.04), (0.1, 0.08), _RUBBER * 2)
    torso = [(-0.17, 0.8), (0.17, 0.8), (0.21, 1.1), (0.22, 1.4), (0.1, 1.5), (-0.1, 1.5)]
    pen.polygon([*torso, (-0.2, 1.4), (-0.18, 1.1)], shirt, 0.25)
    if rng.rand() < 0.3:
        skirt = [(-0.18, 0.92), (0.18, 0.92), (0.32, 0.5), (-0.32, 0.5)]
        pen.polygon(skirt, shirt * 0.9, 0.25)
    pen.limb((0.05, 1.4), (0.1 + swing * 0.5, 1.14), (0.13, 0.12), shirt)
    pen.limb((0.1 + swing * 0.5, 1.14), (0.12 + swing, 0.92), (0.11, 0.09), skin if bare else shirt)
    pen.limb((0.02, 1.46), (0.03, 1.58), (0.11, 0.11), skin * 0.9)
    pen.ellipse((0.0, 1.66), (0.13, 0.15), pick(rng, _HAIR))
    pen.ellipse((0.04, 1.62), (0.1, 0.13), skin)


def car_side(pen: Pen, rng) -> None:
    """4.3 m long, seen from its side: a saloon, a hatchback or a van."""
    lacquer = pick(rng, _LACQUERS)
    roof = rng.choice([1.42, 1.5, 1.75])
    back = rng.choice([-1.9, -1.55])
    body = [
        *[(-2.15, 0.3), (2.15, 0.3), (2.18, 0.62), (2.0, 0.82), (1.2, 0.94), (0.55, roof)],
        *[(back + 0.45, roof), (back, 0.98), (-2.15, 0.92)],
    ]
    pen.polygon(body, lacquer, 0.22)
    glass = _reflecting(0.95, roof)
    pen.polygon([(1.0, 0.96), (0.5, roof - 0.1), (-0.25, roof - 0.1), (-0.25, 0.96)], glass, 0)
    rear = back + 0.55
    pen.polygon(
        [(-0.35, 0.96), (-0.35, roof - 0.1), (rear, roof - 0.1), (rear - 0.3, 0.96)], glass, 0
    )
    pen.box(-2.15, 0.28, 2.15, 0.4, lacquer * 0.5)
    pen.box(-0.33, 0.4, -0.29, 0.95, lacquer * 0.6)
    pen.box(2.02, 0.6, 2.17, 0.74, (1.0, 0.95, 0.75), 0)
    pen.box(-2.15, 0.65, -2.03, 0.84, (0.75, 0.1, 0.08), 0)
    for x in (-1.35, 1.35):
        _wheel(pen, x)


def _wheel(pen: Pen, x: float) -> None:
    pen.ellipse((x, 0.34), (0.36, 0.36), _RUBBER, 0)
    pen.ellipse((x, 0.34), (0.2, 0.2), (0.62, 0.63, 0.65), 0.3)
    pen.ellipse((x, 0.34), (0.07, 0.07), _RUBBER * 3, 0)


def car_end(pen: Pen, rng) -> None:
    """1.8 m wide, seen from its front or its back."""
    lacquer = pick(rng, _LACQUERS)
    roof = rng.choice([1.45, 1.55, 1.8])
    coming = rng.rand() < 0.5
    for x in (-0.7, 0.7):
        pen.box(x - 0.15, 0, x + 0.15, 0.45, _RUBBER)
    pen.polygon(
        [
            *[(-0.9, 0.25), (0.9, 0.25), (0.93, 0.6), (0.88, 0.95), (0.62, roof)],
            (-0.62, roof),
            (-0.88, 0.95),
            (-0.93, 0.6),
        ],
        lacquer,
        0.2,
    )
    pen.polygon(
        [(-0.76, 0.96), (0.76, 0.96), (0.56, roof - 0.09), (-0.56, roof - 0.09)],
        _reflecting(0.95, roof),
        0,
    )
    pen.box(-0.9, 0.24, 0.9, 0.42, lacquer * 0.45)
    pen.box(-0.26, 0.42, 0.26, 0.55, (0.9, 0.9, 0.86), 0)
    lamp = (1.1, 1.05, 0.85) if coming else (0.8, 0.1, 0.08)
    for x in (-0.7, 0.7):
        pen.ellipse((x, 0.7), (0.17, 0.1), lamp, 0)


def _reflecting(bottom: float, top: float):
    """Glass: dark below, with the sky in its upper part."""

    def paint(x, y):
        amount = np.clip((y - bottom) / (top - bottom) + 0.25 * np.sin(3 * x), 0, 1)
        return mix(_GLASS, (0.55, 0.66, 0.76), amount * 0.7)

    return paint


def sailing_boat(pen: Pen, rng) -> None:
    """6 m long with a mast and two sails."""
    hull, sail = (
        pick(rng, _LACQUERS),
        vary(rng, pick(rng, [(0.93, 0.92, 0.88), *_LACQUERS[:1]]), 0.03),
    )
    pen.limb((0.2, 0.5), (0.2, 7.4), (0.16, 0.1), (0.4, 0.34, 0.28))
    pen.polygon([(0.05, 1.1), (0.05, 7.2), (-1.4, 3.6), (-2.7, 1.2)], sail, 0.18)
    pen.polygon([(0.4, 1.0), (0.4, 6.4), (1.6, 3.2), (2.8, 0.9)], sail * 0.92, 0.18)
    pen.polygon([(-2.8, 0.75), (3.2, 0.9), (2.4, -0.15), (-2.4, -0.15)], hull, 0.2)
    pen.polygon([(-2.8, 0.75), (3.2, 0.9), (3.1, 0.68), (-2.76, 0.55)], (0.9, 0.89, 0.86), 0)


def motor_boat(pen: Pen, rng) -> None:
    """6 m long with a cabin."""
    hull, cabin = pick(rng, _LACQUERS), vary(rng, (0.88, 0.87, 0.84), 0.05)
    pen.polygon([(-1.8, 0.9), (0.9, 0.9), (0.5, 2.2), (-1.5, 2.2)], cabin, 0.15)
    pen.polygon([(-1.2, 1.3), (0.55, 1.3), (0.3, 1.9), (-1.1, 1.9)], _reflecting(1.3, 1.9), 0)
    pen.limb((-1.0, 2.2), (-1.2, 3.3), (0.12, 0.08), (0.75, 0.75, 0.75))
    pen.polygon([(-2.9, 1.0), (3.4, 1.3), (2.5, -0.15), (-2.7, -0.15)], hull, 0.22)
    pen.polygon([(-2.9, 1.0), (3.4, 1.3), (3.25, 1.05), (-2.88, 0.78)], cabin, 0)


def bench(pen: Pen, rng) -> None:
    """1.9 m wide: two legs, a seat and a back of slats."""
    wood, iron = pick(rng, _WOODS), vary(rng, (0.16, 0.16, 0.17), 0.02)
    for x in (-0.75, 0.75):
        pen.box(x - 0.07, 0, x + 0.07, 0.98, iron)

    def slats(x, y):
        gap = np.mod(y, 0.17) < 0.035
        return wood * np.where(gap, 0.4, 1 + 0.06 * np.sin(x * 9))[..., None]

    pen.box(-0.98, 0.51, 0.98, 1.02, slats)
    pen.polygon([(-1.02, 0.36), (1.02, 0.36), (0.98, 0.51), (-0.98, 0.51)], wood * 1.2, 0)
    pen.box(-1.02, 0.3, 1.02, 0.38, wood * 0.65)


def airplane(pen: Pen, rng) -> None:
    """An airliner of 12 units from nose to tail, flying to the right."""
    hull, livery = vary(rng, (0.86, 0.87, 0.89), 0.04), pick(rng, _LACQUERS)
    pen.polygon([(0.6, 0.1), (1.8, 0.1), (-0.6, 2.2), (-1.3, 2.2)], hull * 0.72, 0)
    pen.polygon([(-6.2, 2.7), (-5.2, 2.7), (-3.6, 0.5), (-5.6, 0.4)], livery, 0.1)
    nose = [(-6.0, 0.55), (-3.5, 0.7), (4.2, 0.7), (5.3, 0.45), (6.0, -0.05), (5.2, -0.45)]
    pen.polygon([*nose, (4.0, -0.62), (-2.5, -0.62), (-4.5, -0.2)], _airframe(hull, livery), 0.16)
    pen.polygon([(-5.6, 0.3), (-4.4, 0.3), (-5.9, -0.5), (-6.6, -0.5)], hull * 0.8, 0)
    pen.ellipse((0.2, -0.95), (0.75, 0.36), livery * 0.8)
    pen.polygon([(0.4, -0.2), (2.2, -0.2), (-1.6, -2.2), (-2.5, -2.2)], hull * 0.85, 0.1)


def _airframe(hull, livery):
    def paint(x, y):
        window = (np.abs(y - 0.2) < 0.12) & (np.mod(x, 0.55) < 0.3) & (np.abs(x) < 4)
        belly = np.where((y < -0.25)[..., None], livery, hull)
        return np.where(window[..., None], (0.15, 0.2, 0.28), belly)

    return paint

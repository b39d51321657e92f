"""Dogs, horses, sheep and cows: one build with different measures and coats."""

import numpy as np

from mmbixt.datasets.pen import Pen
from mmbixt.datasets.textures import noise_tile, pick, sample, vary

_DOGS = [(0.55, 0.38, 0.22), (0.20, 0.16, 0.14), (0.80, 0.70, 0.54), (0.45, 0.42, 0.40)]
_HORSES = [(0.42, 0.24, 0.14), (0.22, 0.15, 0.11), (0.62, 0.42, 0.24), (0.72, 0.70, 0.67)]
_SHEEP = [(0.88, 0.85, 0.78), (0.80, 0.76, 0.68), (0.35, 0.31, 0.28)]
_COWS = [(0.90, 0.88, 0.85), (0.52, 0.30, 0.18), (0.72, 0.56, 0.38)]


def _patches(rng, ground, spots, size: float):
    """A coat of large spots, as a paint."""
    shift = rng.uniform(0, 256, 2)

    def paint(x, y):
        field = sample(noise_tile(1.7), x / size + shift[0], y / size + shift[1])
        return np.where((field > 0.15)[..., None], spots, ground)

    return paint


def _wool(rng, colour, scale: float):
    shift, grain = rng.uniform(0, 256, 2), min(18.0, scale * 0.6)

    def paint(x, y):
        curls = sample(noise_tile(0.9), x * grain + shift[0], y * grain + shift[1])
        return colour * np.clip(1 + 0.16 * curls, 0.5, 1.4)[..., None]

    return paint


def _legs(pen: Pen, rng, xs, top: float, thickness: float, coat, hoof) -> None:
    """Two pairs of legs in mid stride; the far ones are darker."""
    for x in xs:
        for lean, tone in ((rng.uniform(-0.16, 0.0), 0.7), (rng.uniform(0.0, 0.16), 1.0)):
            knee = (x + lean * top * 0.7, top * 0.5)
            foot = (x + lean * top * 0.9, thickness * 0.3)
            pen.limb((x, top), knee, (thickness * 1.6, thickness), coat * tone)
            pen.limb(knee, foot, (thickness, thickness * 0.8), coat * tone)
            pen.limb(foot, (foot[0] + thickness * 0.3, thickness * 0.2), (thickness,) * 2, hoof)


def dog(pen: Pen, rng) -> None:
    """0.85 m tall with a raised tail and hanging ears."""
    coat = pick(rng, _DOGS)
    dark = coat * 0.6
    _legs(pen, rng, (-0.34, 0.3), 0.42, 0.09, coat, dark)
    pen.limb((-0.42, 0.52), (-0.66, 0.82), (0.09, 0.05), coat)
    pen.limb((-0.32, 0.5), (0.28, 0.53), (0.27, 0.34), coat, 0.3)
    pen.limb((0.3, 0.56), (0.46, 0.76), (0.22, 0.17), coat)
    pen.ellipse((0.48, 0.79), (0.15, 0.13), coat)
    pen.limb((0.52, 0.76), (0.69, 0.71), (0.13, 0.08), coat * 1.1)
    pen.ellipse((0.7, 0.73), (0.03, 0.03), (0.05, 0.05, 0.05), 0)
    pen.limb((0.42, 0.88), (0.36, 0.7), (0.08, 0.1), dark)


def horse(pen: Pen, rng) -> None:
    """1.9 m tall with a long neck, a mane and a tail."""
    coat = pick(rng, _HORSES)
    mane = vary(rng, coat * 0.4, 0.03)
    _legs(pen, rng, (-0.66, 0.56), 0.95, 0.13, coat, mane)
    pen.limb((-0.86, 1.2), (-1.08, 0.55), (0.14, 0.2), mane)
    pen.limb((-0.6, 1.14), (0.5, 1.12), (0.56, 0.54), coat, 0.3)
    pen.limb((0.6, 1.2), (1.0, 1.72), (0.44, 0.24), coat)
    pen.limb((1.0, 1.76), (1.34, 1.44), (0.26, 0.16), coat)
    pen.limb((0.5, 1.42), (0.9, 1.86), (0.14, 0.14), mane)
    pen.polygon([(0.94, 1.84), (1.04, 1.84), (1.0, 2.0)], coat * 0.8)


def sheep(pen: Pen, rng) -> None:
    """1.0 m tall: a heap of wool on short dark legs."""
    wool = pick(rng, _SHEEP, 0.03)
    face = np.array((0.16, 0.14, 0.13)) if rng.rand() < 0.6 else wool * 0.8
    coat = _wool(rng, wool, pen.scale)
    _legs(pen, rng, (-0.32, 0.28), 0.4, 0.1, face, face)
    for x, y in ((-0.42, 0.62), (0.36, 0.64), (-0.2, 0.76), (0.14, 0.78), (-0.02, 0.58)):
        pen.ellipse((x, y), (0.32, 0.26), coat, 0.25)
    pen.limb((0.56, 0.84), (0.78, 0.66), (0.22, 0.15), face)
    pen.limb((0.54, 0.86), (0.4, 0.8), (0.08, 0.06), face)
    pen.ellipse((0.52, 0.92), (0.14, 0.09), coat)


def cow(pen: Pen, rng) -> None:
    """1.5 m tall: a heavy body, often in patches, and horns."""
    ground = pick(rng, _COWS)
    spots = vary(rng, (0.14, 0.11, 0.10), 0.03) if rng.rand() < 0.7 else ground * 0.85
    coat = _patches(rng, ground, spots, rng.uniform(0.025, 0.05))
    _legs(pen, rng, (-0.72, 0.62), 0.68, 0.15, ground * 0.92, spots)
    pen.limb((-0.98, 1.24), (-1.1, 0.5), (0.08, 0.07), spots)
    body = [(-1.0, 0.75), (-0.9, 0.6), (0.6, 0.56), (0.88, 0.7), (0.98, 1.1), (0.85, 1.36)]
    pen.polygon([*body, (-0.8, 1.4), (-1.02, 1.25)], coat, 0.25)
    pen.ellipse((-0.45, 0.56), (0.16, 0.12), (0.85, 0.62, 0.58))
    pen.limb((0.8, 1.18), (1.2, 1.32), (0.46, 0.3), coat)
    pen.limb((1.16, 1.38), (1.46, 1.1), (0.3, 0.2), coat)
    pen.ellipse((1.48, 1.08), (0.11, 0.1), (0.78, 0.58, 0.54))
    pen.limb((1.14, 1.5), (1.24, 1.66), (0.07, 0.03), (0.85, 0.82, 0.72))
    pen.limb((1.08, 1.42), (0.92, 1.38), (0.1, 0.06), spots)

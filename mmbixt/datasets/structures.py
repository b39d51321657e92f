"""What stands still: buildings, trees and fences."""

from dataclasses import dataclass

import numpy as np

from mmbixt.datasets.pen import Pen
from mmbixt.datasets.textures import mix, noise_tile, pick, sample, vary

_FACADES = [
    *[(0.62, 0.36, 0.28), (0.78, 0.72, 0.60), (0.55, 0.57, 0.60), (0.42, 0.52, 0.62)],
    *[(0.84, 0.82, 0.78), (0.52, 0.44, 0.36), (0.46, 0.52, 0.42), (0.76, 0.58, 0.42)],
]
_ROOFS = [(0.48, 0.24, 0.18), (0.30, 0.30, 0.33), (0.40, 0.32, 0.26), (0.32, 0.36, 0.34)]
_GREENS = [(0.20, 0.36, 0.14), (0.28, 0.42, 0.16), (0.36, 0.44, 0.18), (0.14, 0.28, 0.16)]
_AUTUMN = [(0.62, 0.40, 0.14), (0.56, 0.26, 0.14)]
_BARK = [(0.32, 0.24, 0.18), (0.42, 0.36, 0.30), (0.26, 0.20, 0.16)]
_FENCES = [(0.88, 0.87, 0.84), (0.46, 0.33, 0.22), (0.36, 0.30, 0.26), (0.30, 0.42, 0.32)]


def facade(rng, dusk: bool):
    """A wall with rows of windows, as a paint for :class:`Pen`."""
    wall, glass = pick(rng, _FACADES), vary(rng, (0.24, 0.30, 0.38), 0.06)
    frame = np.clip(wall * 1.25, 0, 1)
    storey, bay = rng.uniform(2.8, 3.4), rng.uniform(1.9, 3.2)
    share_x, share_y = rng.uniform(0.42, 0.78), rng.uniform(0.45, 0.65)
    lit = rng.rand(64, 64) < (0.4 if dusk else 0.03)
    bricks = rng.rand() < 0.45

    def paint(x, y):
        column, row = np.floor(x / bay).astype(int), np.floor(y / storey).astype(int)
        u, v = np.abs(x / bay - column - 0.5) * 2, np.abs(y / storey - row - 0.5) * 2
        pane = (u < share_x) & (v < share_y)
        border = (u < share_x + 0.12) & (v < share_y + 0.14) & ~pane
        brightness = 1 + 0.05 * sample(noise_tile(1.2), x * 6, y * 6)
        if bricks:
            mortar = (np.mod(y, 0.36) < 0.09) | (
                np.mod(x + 0.4 * (np.mod(y, 0.72) < 0.36), 0.8) < 0.1
            )
            brightness = brightness * np.where(mortar, 1.12, 0.95)
        colour = wall * brightness[..., None]
        reflected = mix(
            glass * 0.7, glass * 1.5, np.clip(0.5 + 0.5 * (y / storey - row - 0.5 + u), 0, 1)
        )
        glow = lit[row % 64, column % 64]
        window = mix(reflected, (1.5, 1.2, 0.72), 0.85 * glow)
        return np.where(pane[..., None], window, np.where(border[..., None], frame, colour))

    return paint


@dataclass(frozen=True)
class Perspective:
    """How the sides of a building run into the picture.

    Attributes:
        vanishing: Where they meet, in metres to the right of the middle of its front.
        eye: Height where they meet, in metres.
        focal: Distance of the front from the camera, in metres.
    """

    vanishing: float
    eye: float
    focal: float

    def shrink(self, depth: float) -> float:
        """How small things look ``depth`` metres behind the front."""
        return self.focal / (self.focal + depth)

    def project(self, x: float, y: float, depth: float) -> tuple[float, float]:
        """The point of the plane of the front that hides a point behind it."""
        shrink = self.shrink(depth)
        return self.vanishing + (x - self.vanishing) * shrink, self.eye + (y - self.eye) * shrink


def building(
    pen: Pen, rng, width: float, height: float, perspective: Perspective | None = None
) -> None:
    """A block with a flat roof, or a house with tiles if it is low; with one side if asked for."""
    wall, roof = facade(rng, pen.light.dusk), pick(rng, _ROOFS)
    rise = rng.uniform(0.28, 0.5) * min(width, 8)
    low = height < 9
    if perspective is not None:
        _side(pen, wall, roof, width / 2, height, rise if low else 0.0, perspective)
    pen.box(-width / 2, -0.1, width / 2, height, wall, shade=0.06)
    if low:
        _tiled_roof(pen, rng, roof, width, height, rise)
    else:
        _flat_roof(pen, rng, width, height)
    x = rng.uniform(-0.3, 0.3) * width
    pen.box(x - 0.7, 0, x + 0.7, 2.3, roof * 0.8)


def _side(pen: Pen, wall, roof, half, height, rise, perspective: Perspective) -> None:
    """The wall that faces the vanishing point, 8 m deep, and the roof above it."""
    edge, depth = np.copysign(half, perspective.vanishing), 8.0
    lit = 0.62 + 0.3 * (np.sign(edge) == np.sign(pen.light.sun[0]))

    def paint(x, y):
        shrink = (x - perspective.vanishing) / (edge - perspective.vanishing)
        shrink = np.clip(shrink, perspective.shrink(2 * depth), 1)
        along = perspective.focal * (1 / shrink - 1)
        return lit * wall(along, perspective.eye + (y - perspective.eye) / shrink)

    near, far = (edge, height, 0), (edge, height, depth)
    if rise:
        top = (0, height + rise, depth / 2)
        pen.polygon([perspective.project(*p) for p in (near, far, top)], roof * lit * 0.9, 0)
    corners = [near, far, (edge, 0, depth), (edge, 0, 0)]
    pen.polygon([perspective.project(*corner) for corner in corners], paint, shade=0)


def _tiled_roof(pen: Pen, rng, colour, width, height, rise) -> None:
    inset, half = rng.choice([0.0, 0.25]) * width, width / 2 + 0.4
    outline = [(-half, height), (half, height), (inset, height + rise), (-inset, height + rise)]
    pen.polygon(outline, _stripes(colour, 0.4, horizontal=True), shade=0.12)
    if rng.rand() < 0.6:
        x = rng.uniform(-0.3, 0.3) * width
        pen.box(x - 0.35, height + 0.3 * rise, x + 0.35, height + rise * 1.15, colour * 0.8)


def _flat_roof(pen: Pen, rng, width, height) -> None:
    half = width / 2 + 0.2
    pen.box(-half, height, half, height + 0.6, pick(rng, _FACADES) * 0.85)
    if rng.rand() < 0.5:
        x = rng.uniform(-0.25, 0.25) * width
        pen.box(x - 1.2, height + 0.6, x + 1.2, height + 2.4, pick(rng, _FACADES) * 0.7)


def tree(pen: Pen, rng, height: float) -> None:
    """A trunk with a crown of leaves: broad, slender or a conifer."""
    bark = _stripes(pick(rng, _BARK), 0.12, horizontal=False)
    kind = rng.choice(['broad', 'slender', 'conifer'], p=[0.55, 0.2, 0.25])
    leaves = pick(rng, _GREENS if kind == 'conifer' else _GREENS + _AUTUMN, 0.04)
    trunk = 0.05 * height
    pen.limb((0, -0.05), (0.02 * height, height * 0.5), (trunk, trunk * 0.6), bark)
    if kind == 'conifer':
        _conifer(pen, rng, height, leaves)
        return
    radius = np.array([0.36, 0.33] if kind == 'broad' else [0.19, 0.4]) * height
    centre = np.array([0, height - radius[1]])
    for turn in rng.permutation(14) / 14 * 2 * np.pi:
        spot = rng.uniform(0.45, 0.78) * np.array([np.cos(turn), np.sin(turn)])
        _clump(pen, rng, centre + spot * radius, radius * rng.uniform(0.32, 0.48), spot, leaves)
    for _ in range(5):
        spot = rng.uniform(-0.45, 0.45, 2) + 0.2 * np.array(pen.light.sun)
        _clump(pen, rng, centre + spot * radius, radius * rng.uniform(0.36, 0.5), spot, leaves)


def _clump(pen: Pen, rng, centre, radii, spot, colour) -> None:
    brightness = 0.92 + 0.3 * np.dot(spot, pen.light.sun) + rng.uniform(-0.08, 0.08)
    pen.ellipse(
        centre, radii, _foliage(rng, colour * brightness, pen.scale), 0.22, rng.uniform(0, 3)
    )


def _conifer(pen: Pen, rng, height: float, leaves) -> None:
    needles = _foliage(rng, leaves * 0.85, pen.scale)
    for level in np.linspace(0.14, 0.72, 6):
        half = height * 0.25 * (1.05 - level) * rng.uniform(0.9, 1.1)
        top = min(level + 0.34, 1.0) * height
        foot = level * height
        fringe = [
            (half * s, foot + 0.02 * height * (k % 2)) for k, s in enumerate(np.linspace(-1, 1, 7))
        ]
        pen.polygon([*fringe, (0, top)], needles, shade=0.3)


def _foliage(rng, colour, scale: float):
    """Leaves: strong fine speckles, never finer than the pixels."""
    grain = min(1 / 0.09, scale * 0.8)
    shift = rng.uniform(0, 256, 2)

    def paint(x, y):
        speckles = sample(noise_tile(0.6), x * grain + shift[0], y * grain + shift[1])
        return colour * np.clip(1 + 0.3 * speckles, 0.3, 1.9)[..., None]

    return paint


def _stripes(colour, period: float, horizontal: bool):
    def paint(x, y):
        wave = np.sin((y if horizontal else x) * 2 * np.pi / period)
        return colour * (1 + 0.14 * wave[..., None])

    return paint


def fence(pen: Pen, rng, length: float) -> None:
    """A run of planks, or of posts with rails."""
    colour = pick(rng, _FENCES)
    height = rng.uniform(1.1, 1.6)
    if rng.rand() < 0.6:
        board = rng.uniform(0.18, 0.3)

        def planks(x, y):
            gap = np.mod(x / board, 1) < 0.2
            tone = 1 + 0.07 * sample(noise_tile(0.0), np.floor(x / board) * 5, 0 * y)
            rail = np.abs(np.abs(y - height / 2) - height * 0.25) < 0.06
            brightness = np.where(gap, np.where(rail, 0.6, 0.4), tone + 0.08 * rail)
            return colour * brightness[..., None]

        x = np.arange(-length / 2, length / 2, board)
        tips = [(a + b * board, height + 0.12 * (b == 0.5)) for a in x for b in (0.1, 0.5, 0.9)]
        pen.polygon([*tips, (length / 2, 0), (-length / 2, 0)], planks, shade=0.05)
        return
    for rail in (0.3, 0.6, 0.9):
        pen.box(-length / 2, height * rail - 0.11, length / 2, height * rail + 0.11, colour)
    for x in np.arange(-length / 2, length / 2, 1.8):
        pen.box(x - 0.1, -0.05, x + 0.1, height + 0.1, colour * 0.85)

"""The parts that several kinds of places share: ground with borders, rows of trees and houses."""

import numpy as np

from mmbixt.datasets import ground
from mmbixt.datasets.backdrop import mirror, paint_ground
from mmbixt.datasets.stage import Stage
from mmbixt.datasets.textures import mix, ridge


def lay(stage: Stage, name: str, colour, mask=True) -> None:
    """Cover the ground, or the part of it under a mask of (n, w) or broadcastable to it."""
    mask = np.broadcast_to(mask, stage.view.across.shape)
    paint_ground(stage.canvas, stage.view, stage.light, name, colour, mask)


def trees(stage: Stage, depth: float, count: int, heights=(6.0, 10.0)) -> None:
    """A loose row of trees around one depth."""
    for _ in range(count):
        y = stage.view.row(depth * stage.rng.uniform(0.7, 1.3))
        x = stage.rng.uniform(-0.05, 1.05) * stage.view.width
        stage.stand('tree', x, y, stage.rng.uniform(*heights))


def houses(stage: Stage, depth: float, heights, gap: float) -> None:
    """A row of buildings at one depth; ``gap`` is the chance of a free plot."""
    view, rng = stage.view, stage.rng
    y = view.row(depth)
    x = -rng.uniform(0, 6) * view.scale_at(y)
    while x < view.width:
        width = rng.uniform(6, 13)
        pixels = width * view.scale_at(y)
        if rng.rand() > gap:
            foot = y + rng.uniform(-1, 1)
            stage.stand('building', x + pixels / 2, foot, width, rng.uniform(*heights))
        x += pixels * rng.uniform(1.0, 1.15)


def fence(stage: Stage, depths, lengths) -> None:
    """One run of a fence."""
    x = stage.rng.uniform(0.25, 0.75) * stage.view.width
    y = stage.view.row(stage.rng.uniform(*depths))
    stage.stand('fence', x, y, stage.rng.uniform(*lengths))


def water(stage: Stage, shore: float, mask=True) -> None:
    """Lay water in front of a far shore, given as a depth; it mirrors what is drawn already."""
    row = int(stage.view.row(shore))
    surface = ground.water(
        stage.rng, stage.view, lambda ripple: mirror(stage.canvas, stage.view, row, ripple)
    )
    # what it mirrors is lit already
    lay(stage, 'water', surface / stage.light.tint, mask & (stage.view.y >= row))


def foam(stage: Stage, edge) -> None:
    """White water along the rows of a beach; it belongs to what it lies on."""
    view = stage.view
    distance = (view.y - edge) / 3.0
    cover = 0.75 / (1 + distance**4) + 0.45 / (1 + (distance + 5) ** 4)
    below_horizon = stage.canvas.pixels[view.horizon :]
    below_horizon[:] = mix(below_horizon, stage.light.tint * 0.96, cover)


def wavy_row(stage: Stage, depth: float, amount: float) -> np.ndarray:
    """A border between two grounds, (1, w) rows."""
    return stage.view.row(depth) + amount * ridge(stage.rng, stage.view.width, 260.0)[None]


def path(stage: Stage, width: float) -> np.ndarray:
    """(n, w) bool: a way that winds into the picture."""
    view, rng = stage.view, stage.rng
    bend = rng.uniform(0.5, 2) * np.sin(view.away / rng.uniform(4, 9) + rng.uniform(0, 6))
    return np.abs(view.across - rng.uniform(-2, 2) - bend) < width / 2

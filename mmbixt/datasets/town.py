"""Places in the town: a street seen from its side, one seen along it, and a park."""

import numpy as np

from mmbixt.datasets import ground
from mmbixt.datasets.backdrop import paint_mountains
from mmbixt.datasets.scenery import fence, houses, lay, path, trees
from mmbixt.datasets.stage import Stage
from mmbixt.datasets.structures import Perspective


def street_across(stage: Stage) -> None:
    """Houses, a sidewalk, a road from left to right and the near sidewalk or a lawn."""
    view, rng = stage.view, stage.rng
    middle = rng.uniform(0.24, 0.29)
    far, near = middle / 1.52, middle / 0.48
    lay(stage, 'sidewalk', ground.sidewalk(rng, view))
    if rng.rand() < 0.5:
        lay(stage, 'grass', ground.grass(rng, view), view.y > view.row(near + 0.22))
    from_middle = view.away - view.away_at(view.row(middle)) + 0 * view.across
    width = 1.04 * view.away_at(view.row(middle))
    asphalt = ground.road(rng, view, view.across, from_middle, width)
    lay(stage, 'road', asphalt, np.abs(from_middle) < width / 2)
    houses(stage, far * 0.55, (7, 24), gap=0.12)
    trees(stage, far * 0.8, rng.randint(1, 6), (5, 8))
    stage.put('car side', (far + 0.05, middle + 0.03), count=rng.randint(0, 3))
    stage.put('car side', (middle + 0.08, near - 0.02), count=rng.randint(1, 3))
    stage.put('person', (far * 0.6, far), count=rng.randint(0, 3))
    stage.put('bench', (near + 0.06, near + 0.2), count=rng.randint(0, 3))
    stage.put('person', (near + 0.05, 0.98), count=rng.randint(0, 4))
    stage.put('dog', (near + 0.1, 0.98), count=rng.randint(0, 2))


def street_along(stage: Stage) -> None:
    """A road to the vanishing point between sidewalks, lawns and houses."""
    view, rng = stage.view, stage.rng
    if rng.rand() < 0.4:
        paint_mountains(rng, stage.canvas, view, stage.light)
    middle, kerb = rng.uniform(-1.8, 1.8), rng.uniform(2.6, 3.4)
    verge = kerb + rng.uniform(1.8, 2.8)
    across = view.across - middle
    if rng.rand() < 0.75:
        lay(stage, 'grass', ground.grass(rng, view))
    else:
        lay(stage, 'earth', ground.earth(rng, view))
    lay(stage, 'sidewalk', ground.sidewalk(rng, view), np.abs(across) < verge)
    asphalt = ground.road(rng, view, view.away + 0 * across, across, 2 * kerb)
    lay(stage, 'road', asphalt, np.abs(across) < kerb)
    for side in (-1, 1):
        _street_side(stage, middle, side, verge)
    for lane in (middle - kerb / 2, middle + kerb / 2):
        stage.put('car end', (0.15, 0.85), lambda lane=lane: lane, count=rng.randint(0, 3))

    def on_sidewalk():
        return middle + rng.choice([-1, 1]) * rng.uniform(kerb + 0.4, verge)

    stage.put('person', (0.2, 0.9), on_sidewalk, count=rng.randint(1, 4))
    stage.put('bench', (0.25, 0.5), on_sidewalk, count=rng.randint(0, 2))
    stage.put('dog', (0.3, 0.8), on_sidewalk, count=rng.randint(0, 2))


def _street_side(stage: Stage, middle: float, side: int, verge: float) -> None:
    """Houses and trees along one side of a street, from ``verge`` metres off its middle."""
    view, rng = stage.view, stage.rng
    for depth in (0.07, 0.11, 0.17):
        y, width = view.row(depth), rng.uniform(7, 11)
        scale = view.scale_at(y)
        x = view.vanishing + (middle + side * (verge + 0.5 + width / 2)) * scale
        if rng.rand() < 0.8:
            height = rng.uniform(6, 15) * (1 - depth * 2)
            perspective = Perspective((view.vanishing - x) / scale, view.eye, view.away_at(y))
            stage.stand('building', x, y, width, height, perspective)
        else:
            stage.stand('tree', x, y, rng.uniform(5, 8))
    if rng.rand() < 0.6:
        y = view.row(rng.uniform(0.2, 0.4))
        x = view.vanishing + (middle + side * (verge + 0.8)) * view.scale_at(y)
        stage.stand('tree', x, y, rng.uniform(4, 6))


def park(stage: Stage) -> None:
    """A lawn with trees, benches and a path, houses of the town behind."""
    view, rng = stage.view, stage.rng
    if rng.rand() < 0.25:
        paint_mountains(rng, stage.canvas, view, stage.light)
    lay(stage, 'grass', ground.grass(rng, view))
    way = path(stage, rng.uniform(1.6, 3.0))
    if rng.rand() < 0.5:
        lay(stage, 'sidewalk', ground.sidewalk(rng, view), way)
    else:
        lay(stage, 'earth', ground.earth(rng, view), way)
    houses(stage, 0.07, (8, 26), gap=0.3)
    trees(stage, 0.13, rng.randint(2, 7), (5, 8))
    trees(stage, 0.3, rng.randint(0, 3), (4, 6))
    if rng.rand() < 0.5:
        fence(stage, (0.14, 0.3), (8, 24))
    stage.put('bench', (0.25, 0.7), count=rng.randint(1, 3))
    stage.put('person', (0.2, 0.98), count=rng.randint(1, 4))
    stage.put('dog', (0.3, 0.98), count=rng.randint(0, 3))

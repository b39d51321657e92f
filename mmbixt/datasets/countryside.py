"""Places outside the town: meadow, farm, coast and lake."""

import numpy as np

from mmbixt.datasets import ground
from mmbixt.datasets.backdrop import paint_mountains
from mmbixt.datasets.scenery import fence, foam, houses, lay, path, trees, water, wavy_row
from mmbixt.datasets.stage import Stage
from mmbixt.datasets.textures import mix


def meadow(stage: Stage) -> None:
    """Grass below mountains with animals, a fence, trees and a path of earth."""
    view, rng = stage.view, stage.rng
    paint_mountains(rng, stage.canvas, view, stage.light)
    lay(stage, 'grass', ground.grass(rng, view))
    if rng.rand() < 0.6:
        lay(stage, 'earth', ground.earth(rng, view), path(stage, rng.uniform(1.2, 2.6)))
    trees(stage, 0.1, rng.randint(2, 8))
    trees(stage, 0.28, rng.randint(0, 3), (4.5, 7))
    if rng.rand() < 0.7:
        fence(stage, (0.18, 0.42), (8, 26))
    _herd(stage, (0.2, 0.95))
    stage.put('person', (0.25, 0.95), count=rng.randint(0, 2))


def farm(stage: Stage) -> None:
    """A ploughed field or bare earth, a barn, a long fence and animals."""
    view, rng = stage.view, stage.rng
    if rng.rand() < 0.5:
        paint_mountains(rng, stage.canvas, view, stage.light)
    lay(stage, 'grass', ground.grass(rng, view))
    border = wavy_row(stage, rng.uniform(0.12, 0.4), 4)
    lay(stage, 'earth', ground.earth(rng, view, furrows=rng.rand() < 0.6), view.y > border)
    houses(stage, 0.09, (4, 7), gap=0.65)
    trees(stage, 0.09, rng.randint(2, 6))
    fence(stage, (0.16, 0.36), (10, 40))
    _herd(stage, (0.3, 0.95))
    stage.put('person', (0.25, 0.95), count=rng.randint(0, 3))


def coast(stage: Stage) -> None:
    """The sea up to the horizon, a beach in front."""
    view, rng = stage.view, stage.rng
    if rng.rand() < 0.35:
        paint_mountains(rng, stage.canvas, view, stage.light)
    depth = rng.uniform(0.35, 0.65)
    edge = wavy_row(stage, depth, 9)
    water(stage, 0.0)
    shore = ground.sand(rng, view)
    wet = np.clip(1 - (view.y - edge) / 22, 0, 1)
    lay(stage, 'sand', mix(shore, shore * (0.62, 0.64, 0.68), wet), view.y > edge)
    foam(stage, edge)
    stage.put('sailing boat', (0.03, depth * 0.7), count=rng.randint(0, 3))
    stage.put('motor boat', (0.1, depth * 0.85), count=rng.randint(0, 3))
    stage.put('person', (depth + 0.06, 0.98), count=rng.randint(1, 5))
    stage.put('dog', (depth + 0.06, 0.98), count=rng.randint(0, 2))
    stage.put('bench', (depth + 0.1, 0.9), count=rng.randint(0, 2))


def lake(stage: Stage) -> None:
    """Water between a far shore below mountains and a near bank of grass or earth."""
    view, rng = stage.view, stage.rng
    paint_mountains(rng, stage.canvas, view, stage.light)
    lay(stage, 'grass', ground.grass(rng, view))
    shore = rng.uniform(0.05, 0.09)
    trees(stage, shore * 0.9, rng.randint(4, 12), (6, 11))
    houses(stage, shore * 0.7, (5, 9), gap=0.8)
    stage.perform()
    bank = wavy_row(stage, rng.uniform(0.5, 0.8), 10)
    water(stage, shore, view.y < bank)
    if rng.rand() < 0.4:
        lay(stage, 'earth', ground.earth(rng, view), view.y >= bank)
    stage.put('motor boat', (shore + 0.06, 0.45), count=rng.randint(0, 3))
    stage.put('sailing boat', (shore + 0.02, 0.35), count=rng.randint(0, 3))
    stage.put('bench', (0.75, 0.9), count=rng.randint(0, 2))
    stage.put('person', (0.82, 1.0), count=rng.randint(0, 3))
    stage.put('dog', (0.82, 1.0), count=rng.randint(0, 2))


def _herd(stage: Stage, depths) -> None:
    """A few animals of one or two kinds."""
    kinds = stage.rng.choice(['cow', 'sheep', 'horse', 'dog'], 2, p=[0.3, 0.3, 0.28, 0.12])
    for kind in kinds:
        stage.put(str(kind), depths, count=stage.rng.randint(1, 3))

"""Sky, mountains and ground: everything behind and below the objects of a scene."""

import cv2
import numpy as np

from mmbixt.datasets.canvas import Canvas
from mmbixt.datasets.light import Light
from mmbixt.datasets.textures import mix, noise_tile, pick, ridge, sample
from mmbixt.datasets.view import View

_MOUNTAINS = [(0.22, 0.34, 0.18), (0.34, 0.36, 0.40), (0.42, 0.36, 0.28), (0.30, 0.38, 0.46)]
_SNOW = np.array((0.93, 0.95, 0.98))


def paint_sky(rng: np.random.RandomState, canvas: Canvas, view: View, light: Light) -> None:
    """Fill the canvas with a gradient, brighter on the side of the sun, and clouds."""
    y, x = np.arange(canvas.height)[:, None], np.arange(canvas.width)[None]
    altitude = np.clip(1 - y / view.horizon, 0, 1) * np.ones_like(x)
    sunny = np.exp(-(((x / canvas.width - 0.5 - 0.4 * light.sun[0]) / 0.5) ** 2))
    sky = mix(light.horizon, light.zenith, altitude**0.7)
    sky = mix(sky, np.minimum(light.horizon * 1.15, 1), 0.6 * sunny * (1 - altitude) ** 2)
    opacity, thickness = _clouds(rng, x / canvas.height, altitude, light)
    white = np.clip(light.horizon * 0.55 + 0.45 * light.tint, 0, 1)
    sky = mix(sky, mix(white, white * 0.72, thickness), opacity)
    canvas.paint(np.ones(altitude.shape, bool), sky, canvas.add_stuff('sky'))


def _clouds(rng, x, altitude, light: Light) -> tuple[np.ndarray, np.ndarray]:
    """How much the clouds hide and how grey they are, both (h, w); flatter near the horizon."""
    farness = 1 / (0.25 + altitude)
    u = 128 * x * farness + rng.uniform(0, 256)
    v = 90 * farness + rng.uniform(0, 256)
    cover = sample(noise_tile(1.7), u, v)
    towards_sun = sample(noise_tile(1.7), u - 4 * light.sun[0], v + 3)
    opacity = np.clip((cover - 1.6 + 2.6 * light.clouds) * 1.4, 0, 0.92)
    opacity = opacity * np.clip(altitude * 5, 0.15, 1)
    return opacity, np.clip(0.45 + 0.9 * (towards_sun - cover), 0, 1)


def paint_mountains(rng: np.random.RandomState, canvas: Canvas, view: View, light: Light) -> None:
    """Paint one to three ranges, the far ones higher and paler, with or without snow."""
    base, peak = pick(rng, _MOUNTAINS), rng.uniform(0.35, 0.75) * view.horizon
    layers, snow = rng.randint(1, 4), rng.rand() < 0.4
    y, x = np.arange(canvas.height)[:, None], np.arange(canvas.width)[None]
    for nearness in np.arange(1, layers + 1) / layers:
        top = peak * (1.15 - 0.6 * nearness)
        crest = view.horizon - top * (0.62 + 0.5 * ridge(rng, canvas.width, canvas.width * 0.45))
        below = y - np.minimum(crest, view.horizon - 4)[None]
        # spurs run down from the crest: the noise is sheared by the height below it
        u = x * 0.8 + 0.9 * np.sign(light.sun[0]) * below
        spurs = sample(noise_tile(1.8), u, below * 0.5 + 180 * nearness)
        forest = sample(noise_tile(0.7), x * 0.8, y * 1.2)
        brightness = 1 + 0.24 * np.tanh(1.5 * spurs) + 0.11 * forest * nearness
        colour = base * np.clip(brightness, 0.35, 1.8)[..., None]
        if snow and (nearness < 1 or layers == 1):
            white = _SNOW * np.clip(1 + 0.12 * spurs, 0.6, 1.05)[..., None]
            colour = mix(colour, white, np.clip((top * 0.28 + 5 * spurs - below) / 6, 0, 1))
        haze = light.haze * (1.25 - 0.8 * nearness + 0.25 * np.clip(below / top, 0, 1))
        colour = mix(colour * light.tint, light.horizon, np.clip(haze, 0, 0.8))
        mask = (below >= 0) & (y < view.horizon + 3)
        canvas.paint(mask, colour, canvas.add_stuff('mountain'))


def paint_ground(canvas: Canvas, view: View, light: Light, name: str, colour, mask) -> None:
    """Paint a region of the ground.

    Args:
        colour: (n, w, 3) of the ``n`` rows below the horizon.
        mask: (n, w) bool.
    """
    distance = np.clip(1 - view.scale / view.scale[-1] * 6, 0, 1)
    colour = mix(colour * light.tint, light.horizon, light.haze * distance * np.ones_like(view.x))
    canvas.paint(mask, colour, canvas.add_stuff(name), top=view.horizon)


def mirror(canvas: Canvas, view: View, shore: int, ripple: np.ndarray) -> np.ndarray:
    """What a water surface reflects: the picture above its shore, upside down and rippled.

    Args:
        shore: Row of the far shore.
        ripple: (n, w) displacement in pixels.

    Returns:
        (n, w, 3) for the ``n`` rows below the horizon.
    """
    rows = np.clip(2 * shore - view.y + ripple, 0, shore - 1).astype(np.float32)
    columns = np.broadcast_to(view.x + 0.5 * ripple, rows.shape).astype(np.float32)
    return cv2.remap(
        canvas.pixels, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )

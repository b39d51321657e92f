"""Surfaces of the ground in perspective: the colour of grass, earth, sand, road and water."""

import numpy as np

from mmbixt.datasets.textures import mix, noise_tile, pick, sample
from mmbixt.datasets.view import View

_GRASS = [(0.30, 0.46, 0.16), (0.40, 0.52, 0.20), (0.52, 0.50, 0.24), (0.22, 0.40, 0.18)]
_EARTH = [(0.46, 0.34, 0.22), (0.38, 0.28, 0.20), (0.55, 0.42, 0.30), (0.50, 0.34, 0.24)]
_SAND = [(0.84, 0.74, 0.54), (0.78, 0.70, 0.56), (0.88, 0.80, 0.64), (0.74, 0.62, 0.44)]
_ROAD = [(0.30, 0.30, 0.32), (0.40, 0.40, 0.41), (0.36, 0.33, 0.31), (0.24, 0.25, 0.28)]
_SLABS = [(0.62, 0.60, 0.57), (0.70, 0.66, 0.60), (0.56, 0.56, 0.58), (0.62, 0.52, 0.46)]
_WATER = [(0.10, 0.32, 0.46), (0.12, 0.38, 0.40), (0.20, 0.34, 0.36), (0.10, 0.24, 0.42)]


def _relief(rng, view: View, roughness: float, metres: float) -> np.ndarray:
    """Noise that lies on the ground, (n, w); it fades where it is finer than the pixels.

    Args:
        metres: Size of a pixel of the noise.
    """
    u = view.across / metres + rng.uniform(0, 256)
    v = view.away / metres + rng.uniform(0, 256)
    pixel_away = view.away / view.scale / view.eye
    fade = np.clip(metres / np.maximum(pixel_away, 1 / view.scale), 0, 1)
    return sample(noise_tile(roughness), u, v) * fade


def _lines(coordinate, period: float, width, view: View) -> np.ndarray:
    """1 on lines across a coordinate in metres, 0 between them, (n, w)."""
    distance = np.abs(np.mod(coordinate / period, 1) - 0.5) * period
    return np.clip((width / 2 - distance) * view.scale + 0.5, 0, 1)


def grass(rng, view: View) -> np.ndarray:
    """Blades: upright flecks that grow towards the camera, over patches of two greens."""
    first, second = pick(rng, _GRASS, 0.04), pick(rng, _GRASS, 0.04)
    patches = _relief(rng, view, 1.6, 0.15)
    colour = mix(first, mix(first, second, 0.6), np.clip(0.5 + 0.5 * patches, 0, 1))
    size = rng.uniform(0.022, 0.034)
    u = view.across / size + rng.uniform(0, 256)
    v = np.log(view.y - view.horizon) * 0.6 * view.eye / size + rng.uniform(0, 256)
    blades = sample(noise_tile(0.5), u, v)
    tufts = sample(noise_tile(1.1), u * 0.3, v * 0.5)
    fade = np.clip(view.scale * size * 2, 0.35, 1)
    return colour * np.clip(1 + 0.17 * blades * fade + 0.13 * tufts, 0.4, 1.7)[..., None]


def earth(rng, view: View, furrows: bool = False) -> np.ndarray:
    """Clods and pebbles, in the furrows of a field if asked for."""
    clods = _relief(rng, view, 0.9, 0.05) + 0.5 * _relief(rng, view, 0.5, 0.02)
    brightness = 1 + 0.20 * clods + 0.12 * _relief(rng, view, 1.5, 0.2)
    if furrows:
        wave = np.sin(2 * np.pi * view.across / rng.uniform(0.7, 1.1))
        brightness += 0.24 * wave * np.clip(view.scale * 0.2 - 0.4, 0, 1)
    return pick(rng, _EARTH) * np.clip(brightness, 0.35, 1.7)[..., None]


def sand(rng, view: View) -> np.ndarray:
    """Smooth dunes with faint grain and ripples from the wind."""
    dunes = _relief(rng, view, 1.8, 0.12)
    ripples = np.sin((view.away * 5 + 2 * dunes + view.across) * 1.4)
    ripples = ripples * np.clip(view.scale * 0.05 - 0.6, 0, 1)
    grain = _relief(rng, view, 0.2, 0.02)
    brightness = 1 + 0.06 * dunes + 0.05 * ripples + 0.04 * grain
    return pick(rng, _SAND, 0.04) * brightness[..., None].astype(np.float32)


def road(rng, view: View, along: np.ndarray, across: np.ndarray, width: float) -> np.ndarray:
    """Asphalt with edge lines and a dashed line.

    Args:
        along, across: (n, w) metres in the direction of the road and from its middle.
    """
    grain = _relief(rng, view, 0.3, 0.03)
    stains = _relief(rng, view, 1.6, 0.1)
    colour = pick(rng, _ROAD, 0.04) * (1 + 0.07 * grain + 0.08 * stains)[..., None]
    dashes = (np.mod(along / width / 0.75, 1) < 0.5) & (np.abs(across) < 0.016 * width)
    edges = np.abs(np.abs(across) - 0.45 * width) < 0.012 * width
    worn = np.clip(0.8 + 0.15 * stains, 0.3, 1)
    return mix(colour, (0.86, 0.85, 0.80), (dashes | (edges & (rng.rand() < 0.7))) * worn)


def sidewalk(rng, view: View) -> np.ndarray:
    """Slabs with dark joints."""
    size = rng.uniform(0.55, 0.85)
    joints = np.maximum(
        _lines(view.across, size, 0.05, view), 0.8 * _lines(view.away * 0.5, size, 0.05, view)
    )
    tone = sample(noise_tile(0.0), np.floor(view.across / size) * 7, np.floor(view.away / 2 / size))
    tone = tone * np.clip(view.scale * 0.06 - 0.3, 0, 1)
    brightness = (1 - 0.38 * joints) * (1 + 0.05 * tone + 0.05 * _relief(rng, view, 0.6, 0.04))
    return pick(rng, _SLABS, 0.04) * brightness[..., None].astype(np.float32)


def water(rng, view: View, reflection) -> np.ndarray:
    """Ripples stretched sideways over the colour of the depth and a reflection.

    Args:
        reflection: ``reflection(ripple) -> (n, w, 3)``.
    """
    rough = rng.uniform(0.5, 1.3)
    drop = np.log(view.y - view.horizon) * 34 + rng.uniform(0, 256)
    u = view.across * 3.0 + rng.uniform(0, 256)
    waves = sample(noise_tile(0.9), u, drop * 2) + 0.6 * sample(noise_tile(0.7), u * 2.3, drop * 5)
    ripple = 3.0 * rough * waves * np.clip(view.scale / 14, 0.15, 1.6)
    below = np.clip((view.y - view.horizon) / (view.height - view.horizon), 0, 1)
    mirrored = mix(
        pick(rng, _WATER, 0.04), reflection(ripple), 0.72 - 0.42 * below * np.ones_like(u)
    )
    crests = np.clip(1 + 0.11 * rough * waves, 0.5, 1.6)
    return mirrored * crests[..., None]

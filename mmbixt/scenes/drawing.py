"""Noise, colours, and a canvas with a camera."""

from functools import cache

import cv2
import numpy as np

FINE = 2  # supersampling: the canvas has this many times the rows and columns of the picture
_TILE = 256


@cache
def _noise_tile(roughness: float) -> np.ndarray:
    spectrum = np.fft.rfft2(np.random.RandomState(0).standard_normal((_TILE, _TILE)))
    frequency = np.hypot(np.fft.fftfreq(_TILE)[:, None], np.fft.rfftfreq(_TILE)[None])
    frequency[0, 0] = np.inf
    tile = np.fft.irfft2(spectrum / frequency**roughness, s=(_TILE, _TILE))
    return (tile / tile.std()).astype(np.float32)


def noise(roughness: float, u, v) -> np.ndarray:
    """Noise (h,w), mean 0, deviation 1; roughness 0 is like grain, 1 like leaves, 2 like clouds."""
    u, v = (np.float32(c - _TILE * np.floor(c / _TILE)) for c in np.broadcast_arrays(u, v))
    return cv2.remap(_noise_tile(roughness), u, v, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)


def mix(first, second, amount) -> np.ndarray:
    """Blend two colours (3,) or pictures (h,w,3); ``amount`` is a number or (h,w)."""
    first, second = np.asarray(first, np.float32), np.asarray(second, np.float32)
    return first + (second - first) * np.asarray(amount, np.float32)[..., None]


def vary(rng: np.random.RandomState, *colours) -> np.ndarray:
    """A random colour (3,) near one of those given."""
    colour = np.array(colours[rng.randint(len(colours))]) * rng.uniform(0.9, 1.1)
    return np.clip(colour + rng.uniform(-0.05, 0.05, 3), 0.02, 1)


class Canvas:
    """A picture (h,w) that is being drawn."""

    def __init__(self, rng: np.random.RandomState, height: int, width: int):
        self.rng, self.height, self.width = rng, FINE * height, FINE * width
        self.y, self.x = np.mgrid[: self.height, : self.width].astype(np.float32)  # (h,w) each
        self.pixels = np.zeros((self.height, self.width, 3), np.float32)  # colours
        self.owner = np.zeros((self.height, self.width), np.int16)  # index into names
        self.names = []  # of what was painted
        self.horizon = int(self.height * rng.uniform(0.38, 0.5))
        below = np.maximum(self.y - self.horizon + 0.5, 0.5)
        self.depth = below / (self.height - self.horizon)  # 0 at the horizon to 1 (h,w)
        self.scale = below / rng.uniform(2.2, 3.2)  # pixels per metre on the ground (h,w)
        self.across = (self.x - self.width / 2) / self.scale  # metres to the right (h,w)

    def paint(self, name: str, mask: np.ndarray, colour: np.ndarray) -> None:
        """Paint a region with a mask (h,w) in a colour (3,) or colours (h,w,3)."""
        self.names.append(name)
        np.copyto(self.pixels, np.float32(colour), where=mask[..., None])
        self.owner[mask] = len(self.names) - 1

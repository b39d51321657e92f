"""Colours, noise, and a canvas with a camera and a light source."""

from functools import cache

import cv2
import numpy as np

FINE = 2  # supersampling: the canvas has this many times the rows and columns of the picture
_TILE = 256
_HOURS = (  # colour of the light, of the sky at the top and at the horizon; strength of shadows
    ((1.02, 1.00, 0.96), (0.20, 0.44, 0.80), (0.68, 0.83, 0.94), 0.50),  # noon
    ((1.10, 0.90, 0.68), (0.36, 0.48, 0.68), (0.98, 0.77, 0.50), 0.50),  # evening
    ((0.82, 0.86, 0.89), (0.58, 0.63, 0.68), (0.80, 0.82, 0.83), 0.20),  # overcast
    ((0.66, 0.58, 0.68), (0.17, 0.20, 0.42), (0.92, 0.56, 0.45), 0.25),  # dusk
)


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


def vary(rng: np.random.RandomState, *colours, amount: float = 0.05) -> np.ndarray:
    """A random colour (3,) near one of those given."""
    colour = np.array(colours[rng.randint(len(colours))]) * (1 + rng.uniform(-2, 2) * amount)
    return np.clip(colour + rng.uniform(-amount, amount, 3), 0.02, 1)


class Canvas:
    """A picture (h,w) that is being drawn; n of its rows are below the horizon."""

    def __init__(self, rng: np.random.RandomState, height: int, width: int):
        self.rng, self.height, self.width = rng, FINE * height, FINE * width
        self.grid = np.mgrid[: self.height, : self.width].astype(np.float32)  # row, column (2,h,w)
        self.pixels = np.zeros((self.height, self.width, 3), np.float32)  # colours
        self.owner = np.zeros((self.height, self.width), np.int16)  # index into names
        self.names, self.town = [], False  # names: COCO's of objects, ADE20K's of the rest
        hour = rng.choice(len(_HOURS), p=[0.4, 0.25, 0.2, 0.15])
        *colours, self.shade = _HOURS[hour]
        self.tint, self.zenith, self.air = (vary(rng, colour, amount=0.03) for colour in colours)
        self.dusk, self.haze = hour == 3, rng.uniform(0.15, 0.5)
        self.sun = np.array([rng.choice([-1, 1]) * rng.uniform(0.4, 1), rng.uniform(0.3, 0.9)])
        self.horizon = int(self.height * rng.uniform(0.38, 0.5))
        self.x = np.arange(self.width)[None] + 0.5
        self.y = np.arange(self.horizon, self.height)[:, None] + 0.5
        self.depth = (self.y - self.horizon) / (self.height - self.horizon)  # (n,1), 0 to 1
        self.scale = (self.y - self.horizon) / rng.uniform(2.2, 3.2)  # pixels per metre (n,1)
        # metres (n,w) to the right and in front of the camera
        self.across = (self.x - self.width * rng.uniform(0.35, 0.65)) / self.scale
        self.away = self.height / self.scale + 0 * self.x
        self.uneven = 0.03 * noise(1.8, self.x * 0.4 + rng.uniform(0, _TILE), 0)  # depths (1,w)

    def paint(self, name: str, mask, colour, haze=0.0, top: int = 0) -> None:
        """Paint a region with a mask (rows,w), from row ``top`` on; ``haze`` is 0 to 1."""
        self.names.append(name)
        rows = slice(top, top + mask.shape[0])
        colour = mix(colour * self.tint, self.air, haze)
        np.copyto(self.pixels[rows], colour, where=mask[..., None])
        self.owner[rows][mask] = len(self.names) - 1

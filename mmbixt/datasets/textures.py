"""Noise and surface patterns: fields of numbers around 0 that vary a colour over a surface."""

from functools import cache

import cv2
import numpy as np

TILE = 256


@cache
def noise_tile(roughness: float) -> np.ndarray:
    """A noise picture that repeats without a seam.

    Args:
        roughness: 0 is grain as fine as the pixels, 1 leaves, 2 clouds.

    Returns:
        (TILE, TILE) float32 with mean 0 and standard deviation 1, always the same.
    """
    rng = np.random.RandomState(int(roughness * 100))
    spectrum = np.fft.rfft2(rng.standard_normal((TILE, TILE)))
    frequency = np.hypot(np.fft.fftfreq(TILE)[:, None], np.fft.rfftfreq(TILE)[None])
    frequency[0, 0] = np.inf
    tile = np.fft.irfft2(spectrum / frequency**roughness, s=(TILE, TILE))
    return (tile / tile.std()).astype(np.float32)


def sample(tile: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Look the noise up at any coordinates, measured in pixels of the tile.

    Args:
        u, v: (h, w) or broadcastable to it.

    Returns:
        (h, w) float32.
    """
    wrapped = [np.float32(c - TILE * np.floor(c / TILE)) for c in np.broadcast_arrays(u, v)]
    return cv2.remap(tile, *wrapped, cv2.INTER_LINEAR, borderMode=cv2.BORDER_WRAP)


def ridge(rng: np.random.RandomState, length: int, wavelength: float) -> np.ndarray:
    """A skyline: ``(length,)`` floats between about -1 and 1 with ever smaller bumps."""
    line = np.zeros(length)
    for octave in range(6):
        step = max(wavelength / 2**octave, 2.0)
        knots = rng.uniform(-1, 1, int(length / step) + 3)
        line += np.interp(np.arange(length) / step, np.arange(len(knots)), knots) / 1.9**octave
    return line / 1.6


def mix(first, second, amount):
    """Blend two colours (or pictures) of 3 channels; ``amount`` is a number or (h, w)."""
    amount = np.asarray(amount, np.float32)
    if amount.ndim == 2:
        amount = amount[..., None]
    first, second = np.asarray(first, np.float32), np.asarray(second, np.float32)
    return first + (second - first) * amount


def vary(rng: np.random.RandomState, colour, amount: float = 0.05) -> np.ndarray:
    """A neighbour of a colour: other brightness for all, a little for each channel."""
    colour = np.asarray(colour) * (1 + rng.uniform(-2, 2) * amount)
    return np.clip(colour + rng.uniform(-amount, amount, 3), 0.02, 1).astype(np.float32)


def pick(rng: np.random.RandomState, palette, amount: float = 0.05) -> np.ndarray:
    """One colour of a palette, varied."""
    return vary(rng, palette[rng.randint(len(palette))], amount)

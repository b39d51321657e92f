"""The hour and the weather: where the light comes from, its colour, and that of the sky."""

from dataclasses import dataclass

import numpy as np

from mmbixt.datasets.textures import vary


@dataclass(frozen=True)
class Light:
    """All colours are (3,) floats in RGB.

    Attributes:
        sun: Direction towards the sun in the picture, x to the right and y up.
        tint: What a white surface looks like.
        zenith, horizon: The sky at the top and at the bottom.
        clouds: How much of the sky they cover, 0 to 1.
        shadow: How dark a shadow is, 0 to 1.
        haze: How fast things fade with their distance, 0 to 1.
        dusk: Whether lamps are lit.
    """

    sun: tuple[float, float]
    tint: np.ndarray
    zenith: np.ndarray
    horizon: np.ndarray
    clouds: float
    shadow: float
    haze: float
    dusk: bool


# tint, zenith, horizon, shadow
_HOURS = {
    'noon': ((1.02, 1.00, 0.96), (0.20, 0.44, 0.80), (0.68, 0.83, 0.94), 0.50),
    'morning': ((1.04, 0.97, 0.86), (0.36, 0.57, 0.82), (0.95, 0.88, 0.78), 0.45),
    'golden': ((1.10, 0.90, 0.68), (0.36, 0.48, 0.68), (0.98, 0.77, 0.50), 0.50),
    'overcast': ((0.82, 0.86, 0.89), (0.58, 0.63, 0.68), (0.80, 0.82, 0.83), 0.20),
    'dusk': ((0.66, 0.58, 0.68), (0.17, 0.20, 0.42), (0.92, 0.56, 0.45), 0.25),
}


def make_light(rng: np.random.RandomState) -> Light:
    """Draw the light of one scene."""
    hour = rng.choice(list(_HOURS), p=[0.32, 0.2, 0.18, 0.16, 0.14])
    tint, zenith, horizon, shadow = _HOURS[hour]
    side = rng.choice([-1, 1])
    return Light(
        sun=(side * rng.uniform(0.4, 1.0), rng.uniform(0.3, 0.9)),
        tint=vary(rng, tint, 0.03) + 0.02,
        zenith=vary(rng, zenith, 0.05),
        horizon=vary(rng, horizon, 0.03),
        clouds=rng.uniform(0.6, 0.9) if hour == 'overcast' else rng.uniform(0.0, 0.65),
        shadow=shadow,
        haze=rng.uniform(0.15, 0.5),
        dusk=hour == 'dusk',
    )

"""The camera of a scene and the flat ground in front of it."""

import numpy as np

from mmbixt.datasets.canvas import Canvas


class View:
    """The camera: flat ground below a horizon, seen from a height in metres.

    Attributes:
        horizon: Row of the horizon.
        eye: Height of the camera in metres.
        x, y: Pixel coordinates, (1, w) and (n, 1), of the ``n`` rows below the horizon.
        across: (n, w) metres to the right of the camera, for every ground pixel.
        away: (n, 1) metres in front of the camera.
        scale: (n, 1) pixels in a metre.
    """

    def __init__(self, rng: np.random.RandomState, canvas: Canvas):
        self.width, self.height = canvas.width, canvas.height
        self.horizon = int(canvas.height * rng.uniform(0.38, 0.5))
        self.eye = rng.uniform(2.2, 3.2)
        self.vanishing = canvas.width * rng.uniform(0.35, 0.65)
        self.x = np.arange(canvas.width)[None] + 0.5
        self.y = np.arange(self.horizon, canvas.height)[:, None] + 0.5
        self.scale = (self.y - self.horizon) / self.eye
        self.across = (self.x - self.vanishing) / self.scale
        self.away = canvas.height / self.scale

    def scale_at(self, y: float) -> float:
        """Pixels in a metre for something that stands on row ``y``."""
        return max(y - self.horizon, 1.0) / self.eye

    def away_at(self, y: float) -> float:
        """How many metres in front of the camera a row of the ground is."""
        return self.height / self.scale_at(y)

    def row(self, depth: float) -> float:
        """A row of the ground: 0 is the horizon, 1 the lower edge of the picture."""
        return self.horizon + depth * (self.height - self.horizon)

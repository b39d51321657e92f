"""Drawing of upright objects in metres, from the point where they stand."""

import cv2
import numpy as np

from mmbixt.datasets.canvas import Canvas
from mmbixt.datasets.light import Light
from mmbixt.datasets.textures import mix


class Pen:
    """Paints the parts of one object; x runs to the right in metres, y upwards.

    A paint is a colour, (3,), or a function ``paint(x, y) -> (h, w, 3)`` of the coordinates in
    metres of the pixels.

    Args:
        foot: Pixel (x, y) of the point (0, 0) of the object.
        scale: Pixels in a metre.
        flip: Whether the object looks to the left.
        angle: Turn in radians, positive lifts the nose.
        haze: How much of the colour of the horizon lies over it, 0 to 1.
    """

    def __init__(
        self,
        canvas: Canvas,
        light: Light,
        owner: int,
        foot,
        scale: float,
        *,
        flip=False,
        angle=0.0,
        haze=0.0,
    ):
        self.canvas, self.light, self.owner = canvas, light, owner
        self.foot, self.scale, self.haze = np.asarray(foot, float), scale, haze
        side = -1 if flip else 1
        cos, sin = np.cos(angle), np.sin(angle)
        self.matrix = scale * np.array([[side * cos, -side * sin], [-sin, -cos]])
        self.inverse = np.linalg.inv(self.matrix)

    def polygon(self, points, paint, shade: float = 0.2) -> None:
        """Fill a polygon.

        Args:
            points: (n, 2) in metres.
            shade: How much lighter the side towards the sun is.
        """
        outline = np.asarray(points, float) @ self.matrix.T + self.foot
        canvas = self.canvas
        left, top = np.maximum(np.floor(outline.min(0)), 0).astype(int)
        right, bottom = np.minimum(
            np.ceil(outline.max(0)) + 1, (canvas.width, canvas.height)
        ).astype(int)
        if right <= left or bottom <= top:
            return
        mask = np.zeros((bottom - top, right - left), np.uint8)
        fixed_point = np.round((outline - (left, top)) * 16).astype(np.int32)
        cv2.fillPoly(mask, [fixed_point], 1, shift=4)
        colour = self._colour(paint, left, top, right, bottom)
        colour = colour * self._shading(outline, left, top, right, bottom, shade)
        colour = mix(colour * self.light.tint, self.light.horizon, self.haze)
        canvas.paint(
            mask.astype(bool), np.broadcast_to(colour, (*mask.shape, 3)), self.owner, top, left
        )

    def ellipse(self, centre, radii, paint, shade: float = 0.35, angle: float = 0.0) -> None:
        """Fill an ellipse; ``angle`` turns it, in radians."""
        turn = np.linspace(0, 2 * np.pi, 25)[:-1]
        x, y = radii[0] * np.cos(turn), radii[1] * np.sin(turn)
        cos, sin = np.cos(angle), np.sin(angle)
        points = np.stack([x * cos - y * sin, x * sin + y * cos], -1)
        self.polygon(points + np.asarray(centre), paint, shade)

    def limb(self, start, end, thickness, paint, shade: float = 0.2) -> None:
        """Fill a rounded bar; ``thickness`` is that of the start and of the end."""
        start, end = np.asarray(start, float), np.asarray(end, float)
        heading = np.arctan2(*(end - start)[::-1])
        back = heading + np.linspace(0.5, 1.5, 6) * np.pi
        front = heading + np.linspace(-0.5, 0.5, 6) * np.pi
        caps = [
            start + thickness[0] / 2 * np.stack([np.cos(back), np.sin(back)], -1),
            end + thickness[1] / 2 * np.stack([np.cos(front), np.sin(front)], -1),
        ]
        self.polygon(np.concatenate(caps), paint, shade)

    def box(self, left, bottom, right, top, paint, shade: float = 0.1) -> None:
        """Fill an upright rectangle."""
        self.polygon([(left, bottom), (right, bottom), (right, top), (left, top)], paint, shade)

    def shadow(self, width: float, height: float) -> None:
        """Cast a shadow on the ground, away from the sun."""
        across, up = self.light.sun
        length = 0.35 * height * abs(across) / (0.3 + up)
        centre = self.foot + self.scale * np.array([-np.sign(across) * length / 2, 0.0])
        radii = self.scale * np.array([(width + length) / 2, 0.06 * (width + length) + 0.05])
        self.canvas.darken(centre, radii, self.light.shadow)
        self.canvas.darken(self.foot, self.scale * np.array([width / 2, 0.1]), 0.35)

    def _colour(self, paint, left, top, right, bottom):
        if not callable(paint):
            return np.asarray(paint, np.float32)
        x, y = np.meshgrid(np.arange(left, right) + 0.5, np.arange(top, bottom) + 0.5)
        metres = np.stack([x - self.foot[0], y - self.foot[1]], -1) @ self.inverse.T
        return paint(metres[..., 0], metres[..., 1])

    def _shading(self, outline, left, top, right, bottom, shade):
        """A slope of brightness over the bounding box, (h, w, 1)."""
        centre = (outline.min(0) + outline.max(0)) / 2
        radius = np.maximum((outline.max(0) - outline.min(0)) / 2, 1)
        u = (np.arange(left, right) - centre[0]) / radius[0]
        v = (centre[1] - np.arange(top, bottom)) / radius[1]
        slope = u[None] * self.light.sun[0] + v[:, None] * self.light.sun[1]
        return (1 + shade * slope[..., None]).astype(np.float32)

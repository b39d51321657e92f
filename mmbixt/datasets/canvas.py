"""A picture under construction: the colour of every pixel and what the pixel belongs to."""

from dataclasses import dataclass

import cv2
import numpy as np

from mmbixt.datasets.classes import ADE_LABELS, COCO_TO_ADE, UNLABELLED

#: The canvas is this many times finer than the picture, so that edges come out smooth.
OVERSAMPLING = 2


@dataclass(frozen=True)
class Segment:
    """Something painted: a value for the label map and, for a thing, its COCO category."""

    label: int
    category: str | None = None


class Canvas:
    """Colours and owners of the pixels, painted from back to front.

    Attributes:
        pixels: (h, w, 3) float32 RGB, 0 to 1.
        owner: (h, w) int16, index into ``segments``. One map for stuff and things, so that labels
            and instances cannot contradict each other.
    """

    def __init__(self, height: int, width: int):
        self.height, self.width = height * OVERSAMPLING, width * OVERSAMPLING
        self.pixels = np.zeros((self.height, self.width, 3), np.float32)
        self.owner = np.zeros((self.height, self.width), np.int16)
        self.segments = [Segment(UNLABELLED)]

    def add_stuff(self, name: str) -> int:
        """Register a region without instances and return its owner number."""
        return self._add(Segment(ADE_LABELS[name]))

    def add_thing(self, category: str) -> int:
        """Register one instance of a COCO category and return its owner number."""
        return self._add(Segment(ADE_LABELS[COCO_TO_ADE[category]], category))

    def _add(self, segment: Segment) -> int:
        self.segments.append(segment)
        return len(self.segments) - 1

    def paint(self, mask, colour, owner: int, top: int = 0, left: int = 0) -> None:
        """Cover the pixels under a mask.

        Args:
            mask: (h, w) bool, with its corner at (``top``, ``left``).
            colour: (h, w, 3) or (3,), 0 to 1.
        """
        window = np.s_[top : top + mask.shape[0], left : left + mask.shape[1]]
        np.copyto(self.pixels[window], colour, where=mask[..., None], casting='same_kind')
        self.owner[window][mask] = owner

    def darken(self, centre, radii, strength: float) -> None:
        """Lay a soft elliptic shadow over what is painted; it belongs to what it falls on."""
        reach = np.asarray(radii) * 1.6 + 2
        left, top = np.maximum(np.asarray(centre) - reach, 0).astype(int)
        right, bottom = np.minimum(np.asarray(centre) + reach, self.owner.shape[::-1]).astype(int)
        if right <= left or bottom <= top:
            return
        x = (np.arange(left, right) - centre[0]) / radii[0]
        y = (np.arange(top, bottom) - centre[1]) / radii[1]
        distance = (x**2)[None] + (y**2)[:, None]
        cover = strength / (1 + distance**3)
        self.pixels[top:bottom, left:right] *= (1 - cover[..., None]).astype(np.float32)

    def small_pixels(self) -> np.ndarray:
        """The picture at its final size, (H, W, 3) float32."""
        size = (self.width // OVERSAMPLING, self.height // OVERSAMPLING)
        return cv2.resize(self.pixels, size, interpolation=cv2.INTER_AREA)

    def small_owner(self) -> np.ndarray:
        """The owner of most of the fine pixels below each final pixel, (H, W) int16."""
        a, b = self.owner[::2, ::2], self.owner[::2, 1::2]
        c, d = self.owner[1::2, ::2], self.owner[1::2, 1::2]
        pair_without_a = np.where((b == c) | (b == d), b, np.where(c == d, c, a))
        return np.where((a == b) | (a == c) | (a == d), a, pair_without_a)

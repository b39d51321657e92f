"""An image in overlapping tiles: where they lie, and the mean of their logits, strip by strip.

Letters: K classes, (h,w) cells of a map of logits, (H,W) pixels. A strip is a map (K,n,w) of some
rows; strips follow each other from top to bottom, and none is kept longer than the next one needs.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import interpolate

ROWS = 16  # of a strip


def tile_starts(side: int, tile: int, overlap: int, unit: int = 1) -> list[int]:
    """The first pixels of the tiles along a side, multiples of ``unit`` if ``tile - overlap`` is.

    The last tile reaches the end of the side, or up to ``unit - 1`` pixels beyond it. With a unit
    of 1 these are the windows of mmseg's ``slide_inference``.
    """
    last = -(-max(side - tile, 0) // unit) * unit
    return [*range(0, last, tile - overlap), last]


def tile_weights(side: int, starts: Sequence[int], tile: int, overlap: float) -> list[Tensor]:
    """The weights (n,) of each tile along a side.

    In an overlap the weight is 0 in the 7/16 of it that are next to the edge of the tile, where
    surroundings are missing, then grows to 1, and is 1 in the other 7/16. An overlap of 0 means
    equal weights. The last tile, which may be padded, reaches the end.
    """
    weights = []
    for start in starts:
        end = side if start == starts[-1] else start + tile
        place = torch.arange(end - start) + 0.5
        weight = torch.ones(end - start)
        if overlap and start > starts[0]:
            weight *= ((place / overlap - 7 / 16) * 8).clamp(0, 1)
        if overlap and start < starts[-1]:
            weight *= (((tile - place) / overlap - 7 / 16) * 8).clamp(0, 1)
        weights.append(weight)
    return weights


def mean_of_tiles(
    tiles: Iterator[Tensor],
    starts: tuple[Sequence[int], Sequence[int]],
    weights: tuple[Sequence[Tensor], Sequence[Tensor]],
) -> Iterator[Tensor]:
    """Strips (K,n,w) of the weighted mean of overlapping tiles.

    Args:
        tiles: their logits (K,h,w), row by row, from left to right. Cells that have no weight are
            cut off.
        starts: the first cells of the tiles, from top to bottom and from left to right.
        weights: of :func:`tile_weights`, in the same order.
    """
    (tops, lefts), (down, along), band = starts, weights, None
    width = lefts[-1] + len(along[-1])
    for i, y in enumerate(down):
        for left, x, logits in zip(lefts, along, tiles, strict=False):  # of the next row, too
            if band is None:
                band = logits.new_zeros(1 + len(logits), max(map(len, down)), width)
            weight, part = torch.outer(y, x), band[:, : len(y), left : left + len(x)]
            part[0] += weight
            part[1:].addcmul_(logits[:, : len(y), : len(x)], weight)
        done = tops[i + 1] - tops[i] if i + 1 < len(tops) else len(y)
        for strip in band[:, :done].split(ROWS, 1):
            yield strip[1:] / strip[0]
        kept = band[:, done:].clone()
        band.zero_()
        band[:, : kept.shape[1]] = kept


def resize_strips(
    strips: Iterable[Tensor], size: Sequence[int], new: Sequence[int], align_corners: bool
) -> Iterator[Tensor]:
    """Strips of a map of ``size`` (h,w), as ``interpolate(mode='bilinear')`` to ``new`` (H,W).

    Each strip of the result has at most ``ROWS`` rows.
    """
    (h, w), (height, width) = size, new
    if (h, w) == (height, width):
        yield from strips
        return
    place = torch.arange(height, dtype=torch.float32)  # as torch
    if align_corners:
        place *= (h - 1) / max(height - 1, 1)
    else:
        place = ((place + 0.5) * (h / height) - 0.5).clamp(min=0)
    rows = chain.from_iterable(strip.unbind(1) for strip in strips)
    above, number = next(rows), 0
    below = next(rows, above)
    for places in place.split(ROWS):
        strip = above.new_empty(len(above), len(places), w)
        for i, y in enumerate(places.tolist()):
            while number + 1 <= y:
                above, below, number = below, next(rows, below), number + 1
            torch.lerp(above, below, y - number, out=strip[:, i])
        size = len(places), width
        yield interpolate(strip[None], size, mode='bilinear', align_corners=align_corners)[0]


def crop_strips(strips: Iterable[Tensor], size: Sequence[int]) -> Iterator[Tensor]:
    """Strips of the first rows and columns (H,W) of a map."""
    height, width = size
    for strip in strips:
        yield strip[:, :height, :width]
        height -= strip.shape[1]
        if height <= 0:
            return

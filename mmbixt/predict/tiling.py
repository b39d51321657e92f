"""An image in overlapping tiles: where they lie, and the mean of their logits, strip by strip.

Letters: K classes, (h,w) cells of a map of logits, (H,W) pixels. A strip is a map (K,n,w) of some
rows; strips follow each other from top to bottom, and none is kept longer than the next one needs.
"""

from collections.abc import Iterable, Iterator, Sequence

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


def tile_weights(cells: int, overlap: float, is_first: bool, is_last: bool) -> Tensor:
    """The weights (cells,) of a tile along a side.

    They fall from 1 to 0 around the middle of an overlap, so that each pixel is predicted with most
    of its surroundings: the outer 7/16 of an overlap do not count, the inner 7/16 count fully.
    """
    place = torch.arange(cells) + 0.5
    inside = torch.full((cells,), torch.inf)
    if not is_first:
        inside = place
    if not is_last:
        inside = torch.minimum(inside, cells - place)
    return (
        ((inside - overlap * 7 / 16) / (overlap / 8)).clamp(0, 1) if overlap else (inside > 0) * 1.0
    )


def mean_of_tiles(
    rows: Iterable[Iterable[Tensor]],
    tops: Sequence[int],
    lefts: Sequence[int],
    overlap: tuple[float, float] = (0, 0),
) -> Iterator[Tensor]:
    """Strips (K,n,w) of the weighted mean of overlapping tiles.

    Args:
        rows: for each of ``tops`` the logits (K,h,w) of tiles at each of ``lefts``. All are of one
            size, but the last row and the last tile of a row may be smaller.
        tops, lefts: the first cells of the tiles.
        overlap: of two tiles, in cells of height and width, for :func:`tile_weights`; 0 means
            equal weights.
    """
    band = total = None
    right = 0  # the end of the tiles of a row
    for i, (top, row) in enumerate(zip(tops, rows, strict=True)):
        for j, (left, logits) in enumerate(zip(lefts, row, strict=True)):
            height, width = logits.shape[1:]
            if band is None:
                band = logits.new_zeros((len(logits), height, lefts[-1] + width))
                total = band.new_zeros(band.shape[1:])
            elif j == 0:
                done = top - tops[i - 1]
                yield from (band[:, :done, :right] / total[:done, :right]).split(ROWS, 1)
                for x in (band, total):
                    x[..., :-done, :] = x[..., done:, :].clone()
                    x[..., -done:, :] = 0
            down = tile_weights(height, overlap[0], i == 0, i == len(tops) - 1)
            along = tile_weights(width, overlap[1], j == 0, j == len(lefts) - 1)
            weights = torch.outer(down, along)
            right = left + width
            band[:, :height, left:right].addcmul_(logits, weights)
            total[:height, left:right] += weights
    yield from (band[:, :height, :right] / total[:height, :right]).split(ROWS, 1)


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
    upper = place.long()
    lower, share = (upper + 1).clamp(max=h - 1), (place - upper)[:, None]
    kept, first, done = None, 0, 0  # rows of the map, the number of the first one; rows returned
    for strip in strips:
        kept = strip if kept is None else torch.cat([kept, strip], 1)
        while done < height:
            end = min(done + ROWS, height)
            if lower[end - 1] >= first + kept.shape[1]:
                break
            a, b = (kept[:, x[done:end] - first] for x in (upper, lower))
            rows = torch.lerp(a, b, share[done:end])
            yield interpolate(
                rows[None], (end - done, width), mode='bilinear', align_corners=align_corners
            )[0]
            done = end
        if done < height and (unused := int(upper[done]) - first) > 0:
            unused = min(unused, kept.shape[1])
            kept, first = kept[:, unused:].clone(), first + unused

"""Label maps of images of any size by a segmentor, whole or in overlapping tiles."""

from collections.abc import Iterator, Sequence
from math import ceil, gcd
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.device import get_device
from torch import Tensor
from torch.nn.functional import interpolate, pad
from tqdm import tqdm

from mmbixt.config import ConfigError, data_sets, read_config, type_name
from mmbixt.predict.networks import OnnxFile, Segmentor
from mmbixt.predict.tiling import mean_of_tiles, resize_strips, tile_starts

UNIT = 32  # tiles begin at multiples of it: the stride of the last feature maps


class Predictor:
    """A segmentor with the weights of a checkpoint, for images of any size.

    Memory grows with the area of a tile and the width of an image. Where all that a pixel's label
    depends on fits into the overlap, the labels are those of the whole image.

    Args:
        config: of a segmentor: a file, the name of one of mmbixt's, or mmengine's object.
        checkpoint: of the whole segmentor, as for tools/test.py; or an .onnx file of it.
        scale: factor of the size of the photos; 1 keeps it. By default they are resized as by the
            test pipeline, which is how the model was evaluated.
        short_side: resize photos to this shorter side instead.
        tile: side of a tile; images that are not larger are predicted as a whole.
        overlap: of two tiles, in pixels (default: a quarter of a tile).
        batch: number of tiles that are predicted at once.
        whole: do not use tiles.
        device: 'cuda' or 'cpu' (default: a GPU if torch finds one).
        amp: compute in bfloat16.
        quiet: do not print the sizes at which photos are predicted.

    Example:
        >>> labels = Predictor('config.py', 'iter_80000.pth')('photo.jpg')  # (H,W)
    """

    def __init__(
        self,
        config: str | Path | Config,
        checkpoint: str | Path,
        *,
        scale: float | None = None,
        short_side: int | None = None,
        tile: int = 1024,
        overlap: int | None = None,
        batch: int = 4,
        whole: bool = False,
        device: str | None = None,
        amp: bool = False,
        quiet: bool = False,
    ) -> None:
        config = config if isinstance(config, Config) else read_config(str(config))
        if Path(checkpoint).suffix == '.onnx':
            self.network = OnnxFile(str(checkpoint))
        else:
            self.network = Segmentor(config, str(checkpoint), device or get_device(), amp)
        self.tile = self.network.tile or (tile, tile)
        self.overlap = min(self.tile) // 4 if overlap is None else overlap
        if not 0 <= self.overlap < min(self.tile):
            raise ConfigError(f'An overlap of {overlap} does not fit into tiles of {self.tile}.')
        self.whole, self.batch = whole and not self.network.tile, batch
        self.meta, self.is_evaluation = self.network.meta, not (scale or short_side)
        self.load, self.resize = _transforms(config, scale, short_side)
        self.said = {None} if quiet else set()

    def __call__(self, image: str | Path | np.ndarray) -> np.ndarray:
        """The labels (H,W) of an image: a file, or pixels (H,W,3), BGR as OpenCV reads them."""
        return self.predict(image)[0]

    def predict(self, image: str | Path | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels and their probabilities, 0 to 255, each (H,W)."""
        photo = image if isinstance(image, np.ndarray) else self.read(image)
        height, width = photo.shape[:2]
        count = len(self.meta.get('classes') or ())
        labels = np.empty((height, width), np.uint8 if count <= 256 else np.uint16)
        probabilities, done = np.empty((height, width), np.uint8), 0
        for strip in self.logits(photo):
            rows = slice(done, done := done + strip.shape[1])
            labels[rows], probabilities[rows] = self._decide(strip)
        return labels, probabilities

    def read(self, path: str | Path) -> np.ndarray:
        """The pixels (H,W,C) of a file, as the test pipeline reads them."""
        return self.load(dict(img_path=str(path)))['img']

    @torch.no_grad()
    def logits(self, photo: np.ndarray) -> Iterator[Tensor]:
        """Logits of a photo (H,W,C) in strips (K,n,W) from top to bottom."""
        size = photo.shape[:2]
        image = self.resize(dict(img=photo, img_shape=size, ori_shape=size))['img']
        image, new = np.atleast_3d(image), image.shape[:2]
        self._say(size, new)
        strips = resize_strips(*self._mean(image), new, self.network.align_corners)
        yield from resize_strips(strips, new, size, self.network.align_corners)

    def _mean(self, image: np.ndarray) -> tuple[Iterator[Tensor], tuple[int, int]]:
        """The mean of the tiles of an image, in strips (K,n,w), and the size (h,w) of all."""
        size = image.shape[:2]
        tile, overlap = (size, 0) if self.whole else (self.tile, self.overlap)
        units = [gcd(UNIT, side - overlap) for side in tile]
        tops, lefts = (
            tile_starts(*sides, overlap, unit)
            for *sides, unit in zip(size, tile, units, strict=True)
        )
        run = Tiles(self.network, image, tile, len(tops) * len(lefts) > 1, self.batch)
        first, last = run.peek(tops[0], lefts[0]), run.peek(tops[-1], lefts[-1])
        strides = [
            side / cells if len(starts) > 1 else 1
            for side, cells, starts in zip(tile, first.shape[1:], (tops, lefts), strict=True)
        ]
        if any(unit % stride for unit, stride in zip(units, strides, strict=True)):
            run.align_corners = self.network.align_corners  # cells of tiles do not coincide
            strides, last = (1, 1), run.peek(tops[-1], lefts[-1])
        cells = [
            [int(start / stride) for start in starts]
            for starts, stride in zip((tops, lefts), strides, strict=True)
        ]
        rows = (run.row(top, lefts) for top in tops)
        strips = mean_of_tiles(rows, *cells, [overlap / stride for stride in strides])
        h, w = (x[-1] + side for x, side in zip(cells, last.shape[1:], strict=True))
        return strips, (h, w)

    def _decide(self, logits: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Labels and probabilities, 0 to 255, of a strip (K,n,W): each (n,W)."""
        if len(logits) == 1:
            score = logits[0].sigmoid()
            labels = score > self.network.threshold
            probability = torch.where(labels, score, 1 - score)
        else:
            best, labels = logits.max(0)
            probability = 1 / (logits - best).exp_().sum(0)
        return labels.numpy(), (255 * probability).round().numpy()

    def _say(self, size: tuple[int, int], new: tuple[int, int]) -> None:
        """Print a line for each size of photo that is resized."""
        if size == new or not self.said.isdisjoint({None, size}):
            return
        self.said.add(size)
        (height, width), (h, w) = size, new
        why = ', as in evaluation; --scale 1 keeps its size' if self.is_evaluation else ''
        tqdm.write(f'{width} x {height} is predicted at {w} x {h}{why}')


class Tiles:
    """The tiles of an image, and their logits as a network returns them.

    At the right and at the bottom of an image tiles are smaller; where the network needs one size,
    the pixels at the border are repeated. ``align_corners`` is None, or the way in which logits are
    resized to pixels.
    """

    def __init__(
        self,
        network: Segmentor | OnnxFile,
        image: np.ndarray,
        tile: tuple[int, int],
        is_part: bool,
        batch: int,
    ) -> None:
        self.network, self.image, self.tile, self.batch = network, image, tile, batch
        self.is_part, self.is_graph = is_part, is_part and network.has_graph
        self.align_corners: bool | None = None
        self.done: dict[tuple[int, int], Tensor] = {}

    def peek(self, top: int, left: int) -> Tensor:
        """Logits (K,h,w) of a tile, which are kept for its row."""
        if (top, left) not in self.done:
            [self.done[top, left]] = self._run([self._tile(top, left)])
        return self._resized(self.done[top, left], self._tile(top, left))

    def row(self, top: int, lefts: Sequence[int]) -> Iterator[Tensor]:
        """Logits (K,h,w) of a row of tiles."""
        waiting: list[Tensor] = []
        for left in lefts:
            tile, done = self._tile(top, left), self.done.pop((top, left), None)
            is_full = len(waiting) == self.batch
            if waiting and (is_full or done is not None or tile.shape != waiting[0].shape):
                yield from map(self._resized, self._run(waiting), waiting)
                waiting = []
            if done is None:
                waiting.append(tile)
            else:
                yield self._resized(done, tile)
        if waiting:
            yield from map(self._resized, self._run(waiting), waiting)

    def _tile(self, top: int, left: int) -> Tensor:
        """Pixels (C,H,W)."""
        rows, columns = slice(top, top + self.tile[0]), slice(left, left + self.tile[1])
        return torch.from_numpy(np.ascontiguousarray(self.image[rows, columns].transpose(2, 0, 1)))

    def _run(self, tiles: list[Tensor]) -> Tensor:
        """Logits (B,K,h,w) of tiles of one size."""
        size, x = tiles[0].shape[1:], tiles
        if self.is_graph or self.network.tile:
            border = 0, self.tile[1] - size[1], 0, self.tile[0] - size[0]
            x = [pad(tile[None].float(), border, mode='replicate')[0] for tile in tiles]
        if self.is_graph:
            x += [x[-1]] * (self.batch - len(x))
        logits, covered = self.network(x, self.is_part)
        h, w = map(
            ceil, (a * b / c for a, b, c in zip(size, logits.shape[2:], covered, strict=True))
        )
        return logits[: len(tiles), :, :h, :w]

    def _resized(self, logits: Tensor, tile: Tensor) -> Tensor:
        if self.align_corners is None:
            return logits
        size, corners = tile.shape[1:], self.align_corners
        return interpolate(logits[None], size, mode='bilinear', align_corners=corners)[0]


def _transforms(
    config: Config, scale: float | None, short_side: int | None
) -> tuple[Compose, Compose]:
    """What loads an image and what resizes it, from the test pipeline without its labels."""
    _, dataset = next(data_sets(config, 'test'))
    steps = [
        step
        for step in dataset.pipeline
        if not any(x in type_name(step) for x in ('Annotations', 'CheckSample', 'Pack'))
    ]
    load, others = (
        [step for step in steps if ('Load' in type_name(step)) == is_load]
        for is_load in (True, False)
    )
    if scale or short_side:
        size = dict(scale_factor=float(scale)) if scale else dict(scale=(10**6, short_side))
        others = [step for step in others if type_name(step).rpartition('.')[2] != 'Resize']
        others = [dict(type='mmcv.Resize', keep_ratio=True, **size), *others]
    return Compose(load), Compose(others)

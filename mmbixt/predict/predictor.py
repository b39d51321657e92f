"""Label maps of images of any size by a segmentor, whole or in overlapping tiles."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from math import ceil, gcd
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.device import get_device
from torch import Tensor
from torch.nn.functional import interpolate
from tqdm import tqdm

from mmbixt.config import ConfigError, read_config, test_set, type_name, within
from mmbixt.predict.networks import OnnxSegmentor, TorchSegmentor, labels_of
from mmbixt.predict.tiling import (
    ROWS,
    crop_strips,
    mean_of_tiles,
    resize_strips,
    tile_starts,
    tile_weights,
)
from mmbixt.visualization.images import as_rgb

UNIT = 32  # tiles begin at multiples of it if they can: the stride of the last feature maps


class Predictor:
    """A segmentor with the weights of a checkpoint, for images of any size.

    Memory grows with the area of a tile and the width of an image. Labels are those of the whole
    image where the pixels that a label depends on are within the overlap of two tiles.

    Args:
        config: of a segmentor: a file, the name of one of mmbixt's, or mmengine's object.
        checkpoint: of the whole segmentor, as for tools/test.py; or an .onnx file of it.
        scale: factor of the size of the photos; 1 keeps it. By default they are resized as by the
            test pipeline, which is how the model was evaluated.
        short_side: resize photos to this shorter side instead.
        tile: side of a tile; images that are not larger are predicted as a whole. By default tiles
            are the windows of mmseg if ``test_cfg`` has them (``mode='slide'``), otherwise 1024.
        overlap: of two tiles, in pixels (default: a quarter of a tile). If tile - overlap is not a
            multiple of 32, logits may be summed at full size, which takes more memory.
        batch: number of tiles that are predicted at once (default: 4 on a GPU; 1 on a CPU, where
            more need memory and no less time).
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
        tile: int | None = None,
        overlap: int | None = None,
        batch: int | None = None,
        whole: bool = False,
        device: str | None = None,
        amp: bool = False,
        quiet: bool = False,
    ) -> None:
        config = config if isinstance(config, Config) else read_config(str(config))
        device = device or get_device()
        if Path(checkpoint).suffix == '.onnx':
            self.network = OnnxSegmentor(str(checkpoint))
        else:
            self.network = TorchSegmentor(config, str(checkpoint), device, amp)
        is_chosen = whole or tile or overlap is not None or self.network.tile
        test = {} if is_chosen else within(config, 'model', 'test_cfg')
        self.whole, self.quiet = whole and not self.network.tile, quiet
        self.is_slide = test.get('mode') == 'slide'
        if self.is_slide:
            self.tile, self.unit = tuple(test['crop_size']), 1
            self.overlap = [a - b for a, b in zip(self.tile, test['stride'], strict=True)]
        else:
            self.tile = self.network.tile or (tile or 1024,) * 2
            self.overlap = [min(self.tile) // 4 if overlap is None else overlap] * 2
            self.unit = gcd(UNIT, *(side - self.overlap[0] for side in self.tile))
        if not all(0 <= a < b for a, b in zip(self.overlap, self.tile, strict=True)):
            raise ConfigError(f'Overlaps of {self.overlap} do not fit into tiles of {self.tile}.')
        self.batch = batch or (1 if device == 'cpu' else 4)
        self.meta, self.is_evaluation = self.network.meta, scale is None and short_side is None
        self.mean = within(config, 'model', 'data_preprocessor').get('mean') or [0]
        self.load, self.resize = _transforms(config, scale, short_side)
        steps = test_set(config).pipeline
        self.is_rgb = any(step.get('imdecode_backend') == 'tifffile' for step in steps)
        _, self.usual = _transforms(config, None, None)
        self.said: set[tuple[int, int]] = set()

    def __call__(self, image: str | Path | np.ndarray) -> np.ndarray:
        """The labels (H,W) of an image: a file, or pixels (H,W,3), BGR as OpenCV reads them."""
        return self._apply(image, self._labels)[0]

    def predict(self, image: str | Path | np.ndarray) -> list[np.ndarray]:
        """Labels and their probabilities, 0 to 255, each (H,W)."""
        if not self.network.has_logits:
            raise ConfigError('There are no probabilities: this file or head returns no logits.')
        return self._apply(image, self._labels, self._probabilities)

    def _apply(self, image: str | Path | np.ndarray, *functions: Callable) -> list[np.ndarray]:
        """Maps (H,W), one of each function, which gets the logits of an image in strips (K,n,W)."""
        photo = image if isinstance(image, np.ndarray) else self.read(image)
        strips = ([function(strip) for function in functions] for strip in self.logits(photo))
        return [np.concatenate(parts) for parts in zip(*strips, strict=True)]

    def read(self, path: str | Path) -> np.ndarray:
        """The pixels (H,W,C) of a file, as the test pipeline reads them."""
        return self.load(dict(img_path=str(path)))['img']

    def picture(self, photo: np.ndarray) -> np.ndarray:
        """Pixels of :meth:`read` to look at: (H,W,3), RGB, 8 bits."""
        return as_rgb(photo, self.is_rgb)

    @torch.no_grad()
    def logits(self, photo: np.ndarray) -> Iterator[Tensor]:
        """Logits of a photo (H,W,C) in strips (K,n,W) from top to bottom."""
        size = photo.shape[:2]
        if photo.dtype.kind == 'f' and 0 < photo.max() <= 1 < max(self.mean):
            raise ValueError(f'Pixels are 8 bits, 0 to 255, and not {photo.dtype} from 0 to 1.')
        image = self.resize(dict(img=photo, img_shape=size, ori_shape=size))['img']
        image, new = np.atleast_3d(image), image.shape[:2]
        self._say(size, new)
        strips = resize_strips(*self._coarse(image), self.network.align_corners)
        strips = crop_strips(strips, new)  # without what the data preprocessor has padded
        yield from resize_strips(strips, new, size, self.network.align_corners)

    def _coarse(self, image: np.ndarray) -> tuple[Iterable[Tensor], Sequence[int], Sequence[int]]:
        """What the network returns for an image, whole or in tiles: logits in strips (K,n,w), their
        size (h,w), and that of the pixels that they cover."""
        pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)
        prepare = self.network.prepare
        if self.is_slide:  # windows of the padded image
            pixels, prepare = prepare([pixels])[0], torch.stack
        size, tile = pixels.shape[1:], self.tile
        sides = zip(size, tile, self.overlap, strict=True)
        starts = [tile_starts(*side, self.unit) for side in sides]
        if self.whole or (starts == [[0], [0]] and not self.network.tile):
            [logits] = self.network(x := prepare([pixels]))
            return logits.split(ROWS, 1), logits.shape[1:], x.shape[2:]
        last = prepare([pixels[:, starts[0][-1] :, starts[1][-1] :]]).shape[2:]
        covered = [x[-1] + side for x, side in zip(starts, last, strict=True)]
        if self.network.tile:  # all tiles have one size: the last ones repeat the border
            for i in (0, 1):
                places = torch.arange(starts[i][-1] + tile[i]).clamp(max=size[i] - 1)
                pixels = pixels.index_select(i + 1, places)
        tiles = self._tiles(pixels, starts, prepare)
        logits, shape = first = next(tiles)
        side = 1 if starts[0] == [0] else 0  # on which the first tile is full-size
        stride = shape[side] / logits.shape[1 + side]
        # at full size where the cells of tiles do not coincide
        stride = int(stride) if stride >= 1 and self.unit % stride == 0 else 1
        tiles = (self._resized(*one, stride) for one in chain([first], tiles))
        size = [ceil(x / stride) for x in covered]
        cells = [[x // stride for x in y] for y in starts]
        sides = zip(size, cells, tile, self.overlap, strict=True)
        weights = [
            tile_weights(n, first, length // stride, 0 if self.is_slide else overlap / stride)
            for n, first, length, overlap in sides
        ]
        return mean_of_tiles(tiles, cells, weights), size, covered

    def _tiles(
        self, pixels: Tensor, starts: Sequence[Sequence[int]], prepare: Callable
    ) -> Iterator[tuple[Tensor, torch.Size]]:
        """Logits (K,h,w) of the tiles of an image (C,H,W), row by row, and their pixels (H,W)."""
        (height, width), step = self.tile, self.batch
        for top in starts[0]:
            row = [pixels[:, top : top + height, left : left + width] for left in starts[1]]
            for i in range(0, len(row), step):
                # the last one may be narrower
                for _, same in groupby(row[i : i + step], lambda tile: tile.shape):
                    x = prepare([*same])
                    for logits in self.network(x):
                        yield logits, x.shape[2:]

    def _resized(self, logits: Tensor, covered: Sequence[int], stride: int) -> Tensor:
        """Logits (K,h,w), resized if their cells have not this stride."""
        size = (*(ceil(x / stride) for x in covered),)
        if logits.shape[1:] == size:
            return logits
        options = dict(mode='bilinear', align_corners=self.network.align_corners)
        return interpolate(logits[None], size, **options)[0]

    def _labels(self, logits: Tensor) -> np.ndarray:
        """Labels (n,W) of a strip (K,n,W), 8 bits or, of more than 256 classes, 16."""
        labels = labels_of(logits[None], self.network.threshold)[0].numpy()
        return labels.astype(np.uint8 if len(logits) <= 256 else np.uint16)

    def _probabilities(self, logits: Tensor) -> np.ndarray:
        """The probabilities (n,W) of the labels of a strip (K,n,W), 0 to 255."""
        labels = labels_of(logits[None], self.network.threshold)
        if len(logits) == 1:
            logits = torch.cat([torch.zeros_like(logits), logits])
        [chosen] = logits.softmax(0).gather(0, labels)
        return (255 * chosen).round().numpy().astype(np.uint8)

    def _say(self, size: tuple[int, int], new: tuple[int, int]) -> None:
        """Print a line for each size of photo that is resized, or far larger than in evaluation."""
        if self.quiet or size in self.said:
            return
        self.said.add(size)
        photo = dict(img=np.empty(size, np.uint8), img_shape=size, ori_shape=size)
        usual = self.usual(photo)['img'].shape[:2]
        text = '{1} x {0} is predicted at {3} x {2}'.format(*size, *new)
        if min(new) > 4 * min(usual):
            tqdm.write(text + ', over four times the {1} x {0} of evaluation'.format(*usual))
        elif size != new:
            tqdm.write(text + ', as in evaluation; --scale 1 keeps its size' * self.is_evaluation)


def _transforms(
    config: Config, scale: float | None, short_side: int | None
) -> tuple[Compose, Compose]:
    """What loads an image and what resizes it, from the test pipeline without its labels."""
    steps = [(type_name(step), step) for step in test_set(config).pipeline]
    load = [step for name, step in steps if name.startswith('Load') and 'Annotations' not in name]
    others = [(name, x) for name, x in steps if not name.startswith(('Load', 'Check', 'Pack'))]
    if scale is not None or short_side is not None:
        others = [x for x in others if x[0] not in ('Resize', 'ResizeShortestEdge')]
        size = dict(scale=(10**6, short_side)) if scale is None else dict(scale_factor=float(scale))
        if scale != 1:
            others = [('', dict(type='mmcv.Resize', keep_ratio=True, **size)), *others]
    return Compose(load), Compose([step for _, step in others])

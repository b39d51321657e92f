"""Predictions of a trained segmentor for its test set: counts, and pictures of some images."""

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.registry import DATASETS
from tqdm import tqdm

from mmbixt.config import within
from mmbixt.errors import UserError
from mmbixt.evaluation.boundary import band_width, image_sums, scores
from mmbixt.evaluation.sums import ImageSums, indices_of
from mmbixt.predict import Predictor
from mmbixt.visualization.boundary_errors import error_figure
from mmbixt.visualization.choice import image_scores, worst_and_best
from mmbixt.visualization.palette import scene_palette


class Example(NamedTuple):
    """An image of the test set and a picture of its errors."""

    name: str
    score: float  # mIoU in the band, per cent
    overall: float  # mIoU over all pixels, per cent
    differs: bool  # whether the score differs from that of the counts
    errors: str  # a data URL


class Predictions:
    """The test set of a config with the labels that a checkpoint predicts."""

    def __init__(self, config: Config, checkpoint: Path, generated: bool) -> None:
        whole = within(config, 'model', 'test_cfg').get('mode') != 'slide'  # as in evaluation
        self.predict = Predictor(config, checkpoint, quiet=True, whole=whole)
        self.dataset = DATASETS.build(config.test_dataloader.dataset)
        self.paths = [self.dataset.get_data_info(i)['img_path'] for i in range(len(self.dataset))]
        self.ignored = getattr(self.dataset, 'ignore_index', 255)
        self.meta = dict(self.dataset.metainfo)
        if generated:  # ADE20K's palette has four similar greens for classes of the scenes
            self.meta['palette'] = scene_palette(self.meta['classes'], self.meta['palette'])

    def maps(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """True and predicted labels (H,W) of an image."""
        sample = self.dataset[index]['data_samples']
        if 'gt_sem_seg' not in sample:
            raise UserError(f'{sample.img_path} has no gt_sem_seg.')
        return sample.gt_sem_seg.data.numpy()[0], self.predict(self.paths[index])

    def sums(self, maps: tuple[np.ndarray, np.ndarray], **options) -> dict[str, np.ndarray]:
        """Pixel counts (K,) of an image, by name."""
        return image_sums(*maps, len(self.meta['classes']), ignore_index=self.ignored, **options)

    def count(self) -> ImageSums:
        """Predict all images and count their pixels."""
        names = [Path(path).name for path in self.paths]
        sums = [self.sums(self.maps(index)) for index in tqdm(range(len(names)))]
        return ImageSums.stack(names, self.meta['classes'], sums)

    def scores(self, counts: ImageSums, band: str) -> np.ndarray:
        """mIoU (N,) of each image in a band, from counts; NaN without a boundary or counts."""
        found = np.full(len(self.paths), np.nan)
        found[indices_of(counts.images, self.paths)] = image_scores(counts, band)
        return found

    def read(self, index: int) -> np.ndarray:
        """The pixels of an image (H,W,3), RGB."""
        return self.predict.picture(self.predict.read(self.paths[index]))

    def figure(
        self, index: int, maps: tuple[np.ndarray, np.ndarray], title: str, width: int | float
    ) -> Figure:
        """The errors of an image in a band of this width."""
        classes, palette = self.meta['classes'], self.meta.get('palette')
        image = self.read(index)
        return error_figure(image, *maps, classes, palette, width, title, self.ignored)

    def worst_and_best(self, counts: ImageSums, band: str, number: int) -> dict[str, list[Example]]:
        """Images with the lowest and the highest mIoU in a band, at most ``number`` of each."""
        if counts.classes != list(self.meta['classes']):
            raise UserError(
                'The counts are of other classes than those of the test set: see --evaluate'
            )
        counted = self.scores(counts, band)
        worst, best = worst_and_best(counted, number, self.read)
        examples = [self.draw(i, band, counted[i]) for i in tqdm([*worst, *best])]
        return {'Worst': examples[: len(worst)], 'Best': examples[len(worst) :]}

    def draw(self, index: int, band: str, counted: float) -> Example:
        """Predict and draw one image, whose mIoU in the band should be ``counted``."""
        name, maps = Path(self.paths[index]).name, self.maps(index)
        width = band_width(band.removeprefix('band').removesuffix('px'))
        means = scores(self.sums(maps, widths=[width]))
        score = means[f'{band}/mIoU']
        errors = embed(self.figure(index, maps, name, width))
        # the scores of one model may differ by a point between devices
        return Example(name, score, means['all/mIoU'], abs(score - counted) > 1, errors)


def embed(figure: Figure) -> str:
    """A figure as a data URL of a WebP picture, at most 1400 x 2400 pixels."""
    dpi = min(figure.dpi, *np.divide((1400, 2400), figure.get_size_inches()))
    figure.savefig(file := BytesIO(), format='webp', dpi=dpi, pil_kwargs=dict(quality=80))
    return f'data:image/webp;base64,{b64encode(file.getvalue()).decode()}'

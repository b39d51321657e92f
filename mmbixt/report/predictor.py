"""Predictions of a trained segmentor for its test set: counts, and pictures of some images."""

from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.device import get_device
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import nn
from tqdm import tqdm

from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import load_whole_state
from mmbixt.evaluation.boundary import band_width, image_sums, scores
from mmbixt.evaluation.sums import ImageSums, SumsFileError, indices_of
from mmbixt.visualization.choice import image_scores, worst_and_best
from mmbixt.visualization.palette import sample_palette
from mmbixt.visualization.samples import label_map, read_image, sample_figure


class Example(NamedTuple):
    """An image of the test set and a picture of its errors."""

    name: str
    score: float  # mIoU in the band, per cent
    overall: float  # mIoU over all pixels, per cent
    differs: bool  # whether the score differs from that of the counts
    errors: str  # a data URL


class Predictor:
    """A model of mmseg with the weights of a checkpoint, and the test set of its config."""

    def __init__(self, config: Config, model: nn.Module, checkpoint: Path, generated: bool) -> None:
        load_whole_state(model, load(str(checkpoint), 'cpu'))
        self.model = model.to(get_device()).eval()
        self.loader = Runner.build_dataloader(config.test_dataloader)
        self.dataset = self.loader.dataset
        self.meta = dict(self.dataset.metainfo)
        if generated:  # ADE20K's palette has four similar greens for classes of the scenes
            self.meta['palette'] = sample_palette(self.meta['classes'], self.meta['palette'])

    def sums(self, sample: BaseDataElement, **options) -> dict[str, np.ndarray]:
        """Pixel counts (K,) of an image, by name."""
        maps = (label_map(sample, key) for key in ('gt_sem_seg', 'pred_sem_seg'))
        ignored = getattr(self.dataset, 'ignore_index', 255)
        return image_sums(*maps, len(self.meta['classes']), ignore_index=ignored, **options)

    @torch.no_grad()
    def count(self) -> ImageSums:
        """Predict all images and count their pixels."""
        names, sums = [], []
        for batch in tqdm(self.loader):
            for sample in self.model.test_step(batch):
                names.append(Path(sample.img_path).name)
                sums.append({key: n.astype(np.uint32) for key, n in self.sums(sample).items()})
        return ImageSums.stack(names, self.meta['classes'], sums)

    def worst_and_best(self, counts: ImageSums, band: str, number: int) -> dict[str, list[Example]]:
        """Images with the lowest and the highest mIoU in a band, at most ``number`` of each."""
        paths = [self.dataset.get_data_info(k)['img_path'] for k in range(len(self.dataset))]
        if counts.classes != list(self.meta['classes']):
            raise SumsFileError(
                'The counts are of other classes than those of the test set: see --evaluate'
            )
        order = indices_of(counts.images, paths)
        counted = image_scores(counts, band)
        worst, best = worst_and_best(counted, number, lambda i: read_image(paths[order[i]]))
        examples = [self.draw(order[i], band, counted[i]) for i in tqdm([*worst, *best])]
        return {'Worst': examples[: len(worst)], 'Best': examples[len(worst) :]}

    @torch.no_grad()
    def draw(self, index: int, band: str, counted: float) -> Example:
        """Predict and draw one image, whose mIoU in the band should be ``counted``."""
        [sample] = self.model.test_step(pseudo_collate([self.dataset[index]]))
        name = Path(sample.img_path).name
        width = band_width(band.removeprefix('band').removesuffix('px'))
        means = scores(self.sums(sample, widths=[width]))
        score = means[f'{band}/mIoU']
        errors = embed(sample_figure(sample, self.meta, name, width))
        # the scores of one model may differ by a point between devices
        return Example(name, score, means['all/mIoU'], abs(score - counted) > 1, errors)


def embed(figure: Figure) -> str:
    """A figure as a data URL of a WebP picture, at most 1400 x 2400 pixels."""
    dpi = min(figure.dpi, *np.divide((1400, 2400), figure.get_size_inches()))
    figure.savefig(file := BytesIO(), format='webp', dpi=dpi, pil_kwargs=dict(quality=80))
    return f'data:image/webp;base64,{b64encode(file.getvalue()).decode()}'

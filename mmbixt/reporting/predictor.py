"""A trained segmentor at work on the images of its test set."""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.device import get_device
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import CheckpointLoader, Runner
from mmengine.structures import BaseDataElement
from torch import nn

from mmbixt.checkpoints.state_dict import unwrap
from mmbixt.checkpoints.whole_state import load_whole_state
from mmbixt.datasets.availability import check_datasets
from mmbixt.evaluation.boundary import image_sums
from mmbixt.evaluation.sums import ImageSums


class NoTruthError(ValueError):
    """The images of a test set come without true labels."""


@dataclass(frozen=True)
class Prediction:
    """An image and what the model makes of it.

    Attributes:
        image: (H,W,3) uint8, RGB, as it is on disk.
        truth: labels (H,W).
        prediction: labels (H,W).
        inputs: what the model saw, (1,3,H',W').
        content: rows and columns of it that the image fills; what is beyond is padding.
    """

    image: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray
    inputs: torch.Tensor
    content: tuple[int, int]


def without_augmentation(config: Config) -> Config:
    """The config of the model itself, where a test with ``--tta`` has wrapped it."""
    if 'module' not in config.model:
        return config
    plain = deepcopy(config)
    plain.model = config.model.module
    plain.test_dataloader = config.val_dataloader
    return plain


def build_model(config: Config) -> nn.Module:
    """The model of a config, its weights not initialised."""
    init_default_scope(config.get('default_scope', 'mmengine'))
    return MODELS.build(config.model)


class Predictor:
    """A model with the weights of a checkpoint, and its test set.

    Args:
        config: of mmseg.
        model: built from it.
        checkpoint: file of the weights.
    """

    def __init__(self, config: Config, model: nn.Module, checkpoint: Path) -> None:
        check_datasets(config, ('test',))
        load_whole_state(model, unwrap(CheckpointLoader.load_checkpoint(str(checkpoint), 'cpu')))
        self.model = model.to(get_device()).eval()
        self.loader = Runner.build_dataloader(config.test_dataloader)
        self.dataset = self.loader.dataset
        self.classes = list(self.dataset.metainfo['classes'])
        self.palette = self.dataset.metainfo.get('palette')

    @property
    def names(self) -> list[str]:
        """File names of the images, in order."""
        return [Path(self._path(index)).name for index in range(len(self.dataset))]

    def count(self, track: Callable[[Iterable], Iterable]) -> ImageSums:
        """Predict all images and count their pixels.

        Args:
            track: shows progress over an iterable of batches with a length.
        """
        names, sums = [], []
        for batch in track(self.loader):
            for sample in self._predict(batch)[0]:
                names.append(Path(sample.img_path).name)
                sums.append(image_sums(*_labels(sample), len(self.classes)))
        counts = {key: np.stack([of[key] for of in sums]).astype(np.uint32) for key in sums[0]}
        return ImageSums(names, self.classes, counts)

    def __call__(self, index: int) -> Prediction:
        """Predict one image of the test set."""
        samples, inputs = self._predict(pseudo_collate([self.dataset[index]]))
        image = mmcv.imread(self._path(index), channel_order='rgb')
        return Prediction(image, *_labels(samples[0]), inputs, samples[0].img_shape)

    def _predict(self, batch: dict) -> tuple[list[BaseDataElement], torch.Tensor]:
        """Samples with their predictions, and what the model saw (B,3,H,W)."""
        with torch.no_grad():
            data = self.model.data_preprocessor(batch, False)
            return self.model(**data, mode='predict'), data['inputs']

    def _path(self, index: int) -> str:
        return self.dataset.get_data_info(index)['img_path']


def _labels(sample: BaseDataElement) -> Iterator[np.ndarray]:
    """True and predicted labels, (H,W) each."""
    if 'gt_sem_seg' not in sample:
        raise NoTruthError(
            f'Image {Path(sample.img_path).name} of the test set comes without true labels: the '
            'set has no annotation, or its pipeline does not load it (LoadAnnotations).'
        )
    return (sample.get(key).data.cpu().numpy()[0] for key in ('gt_sem_seg', 'pred_sem_seg'))

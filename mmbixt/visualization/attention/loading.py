"""A backbone with the weights of a checkpoint, and an image after a config's test pipeline."""

from pathlib import Path

import cv2
import numpy as np
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import CheckpointLoader
from torch import Tensor

from mmbixt.backbones.base import DenseBackbone
from mmbixt.checkpoints.state_dict import unwrap
from mmbixt.visualization.attention import family_of
from mmbixt.visualization.attention.pictures import AttentionPictureError


def load_backbone(cfg: Config, checkpoint: str) -> DenseBackbone:
    """The backbone of a config's model, with the weights of a file of the model or of it alone."""
    init_default_scope(cfg.default_scope)
    if 'backbone' not in cfg.model:
        raise AttentionPictureError(f'A model of type {cfg.model.type} has no backbone of its own.')
    backbone = MODELS.build(cfg.model.backbone)
    family_of(backbone)  # or an error: there are no pictures of others
    state = unwrap(CheckpointLoader.load_checkpoint(checkpoint, map_location='cpu'))
    own = {key[9:]: x for key, x in state.items() if key.startswith('backbone.')}
    backbone.load_state_dict(own or state)
    return backbone.eval()


def prepare_image(cfg: Config, path: str) -> tuple[Tensor, np.ndarray, tuple[int, int]]:
    """An image file through the test pipeline and the preprocessor of a config.

    Returns:
        What the backbone gets, (1,3,H,W): resized, normalised, padded; the image as it is drawn,
        (h,w,3), RGB, in uint8: resized, without padding; (width, height) of the file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f'There is no image at {path}.')
    original = cv2.imread(path)
    if original is None:
        raise AttentionPictureError(f'{path} is not an image that can be read.')
    dataset = cfg.test_dataloader.dataset
    while 'pipeline' not in dataset:  # a wrapper
        dataset = dataset.get('dataset') or dataset.datasets[0]
    steps = [step for step in dataset.pipeline if 'Annotations' not in str(step.type)]
    init_default_scope(cfg.default_scope)
    packed = Compose(steps)(dict(img_path=path, img_id=0))
    # a classifier's stands beside the model, without its type
    settings = cfg.model.get('data_preprocessor') or cfg.data_preprocessor
    preprocessor = MODELS.build(settings, default_args=dict(type='ClsDataPreprocessor')).eval()
    inputs = preprocessor(pseudo_collate([packed]), training=False)['inputs']
    # as loaded and resized, BGR: the preprocessor normalises and pads
    image = packed['inputs'].permute(1, 2, 0).numpy()[..., ::-1]
    return inputs, np.ascontiguousarray(image), original.shape[1::-1]

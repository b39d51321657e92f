"""Load the backbone of a checkpoint, and an image by the test pipeline of a config."""

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
from mmbixt.visualization.images import decode_rgb


def load_backbone(cfg: Config, checkpoint: str) -> DenseBackbone:
    """The backbone of a config, with weights from a file of the whole model or of the backbone."""
    init_default_scope(cfg.default_scope)
    if 'backbone' not in cfg.model:
        raise AttentionPictureError(f'A model of type {cfg.model.type} has no backbone.')
    backbone = MODELS.build(cfg.model.backbone)
    family_of(backbone)  # raises an error for other backbones
    content = CheckpointLoader.load_checkpoint(checkpoint, map_location='cpu')
    state = unwrap(content)
    own = {key[9:]: x for key, x in state.items() if key.startswith('backbone.')}
    backbone.load_state_dict(own or state, strict=False)  # files of classifiers lack norms
    return backbone.eval()


def prepare_image(cfg: Config, path: str) -> tuple[Tensor, np.ndarray, tuple[int, int]]:
    """Load an image file by the test pipeline and the preprocessor of a config.

    Returns:
        The inputs of the backbone, (1,3,H,W): resized, normalised, padded; the image to draw on,
        (h,w,3), RGB, in uint8: resized, without padding; (width, height) of the file.
    """
    if not Path(path).is_file():
        what = ', which is a folder' if Path(path).is_dir() else ''
        raise FileNotFoundError(f'There is no image at {path}{what}.')
    content = np.fromfile(path, np.uint8)
    # as the pipeline decodes it; imread would accept a truncated file
    original = decode_rgb(content)
    if original is None:
        raise AttentionPictureError(f'{path} is not an image that can be read, or is incomplete.')
    dataset = cfg.test_dataloader.dataset
    while 'pipeline' not in dataset:  # a wrapper
        dataset = dataset.get('dataset') or dataset.datasets[0]
    steps = [step for step in dataset.pipeline if 'Annotations' not in str(step.type)]
    init_default_scope(cfg.default_scope)
    packed = Compose(steps)(dict(img_path=path, img_id=0))
    # one channel may be repeated; tests with augmentation give a list
    channels, expected = len(packed['inputs']), cfg.model.backbone.get('in_channels', 3)
    if isinstance(packed['inputs'], Tensor) and channels not in (1, expected):
        raise AttentionPictureError(
            f'{path} has {channels} channels as the test pipeline loads it, and the backbone needs '
            f'{expected}.'
        )
    # configs of classifiers have it outside the model, and without a type
    settings = cfg.model.get('data_preprocessor') or cfg.data_preprocessor
    preprocessor = MODELS.build(settings, default_args=dict(type='ClsDataPreprocessor')).eval()
    inputs = preprocessor(pseudo_collate([packed]), training=False)['inputs']
    # loaded and resized, BGR; normalisation and padding are left to the preprocessor
    image = packed['inputs'].permute(1, 2, 0).numpy()[..., ::-1]
    if image.shape[2] != 3 or image.dtype != np.uint8:
        image = cv2.resize(original, image.shape[1::-1])
    return inputs, np.ascontiguousarray(image), original.shape[1::-1]

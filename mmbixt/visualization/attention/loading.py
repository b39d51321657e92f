"""Load the weights of a checkpoint, and an image by the test pipeline of a config."""

import numpy as np
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from mmbixt.checkpoints.loader import load_weights
from mmbixt.checkpoints.state_dict import take_part
from mmbixt.config import test_set, type_name
from mmbixt.visualization.images import as_rgb


def load_model(cfg: Config, checkpoint: str) -> nn.Module:
    """The backbone of a config, and its neck if that is class attention, with weights from a file.

    The file is one of mmbixt's of the whole model, or one of the authors.
    """
    init_default_scope(cfg.default_scope)
    state, model, neck = load_weights(checkpoint), nn.Module(), cfg.model.get('neck')
    parts = ['backbone']
    if isinstance(neck, dict) and type_name(neck) == 'ClassAttentionNeck':
        parts.append('neck')
    for name in parts:
        model.add_module(name, MODELS.build(cfg.model[name]))
        model.get_submodule(name).load_state_dict(take_part(state, f'{name}.') or state)
    return model.eval()


def prepare_image(cfg: Config, path: str) -> tuple[Tensor, np.ndarray, tuple[int, int]]:
    """Load an image file by the test pipeline and the preprocessor of a config.

    Returns:
        The inputs of the backbone, (1,3,H,W): resized, normalised, padded; the image to draw on,
        (h,w,3), RGB, in uint8: resized, without padding; (height, width) of the file.
    """
    steps = [step for step in test_set(cfg).pipeline if 'Annotations' not in str(step.type)]
    # configs of classifiers have it outside the model, and without a type
    settings = cfg.model.get('data_preprocessor') or cfg.data_preprocessor
    if 'LoadImageFromFile' not in map(type_name, steps):  # CIFAR's images are in memory, in RGB
        steps = [dict(type='LoadImageFromFile'), *steps]
        settings = dict(settings, to_rgb=True)
    init_default_scope(cfg.default_scope)
    packed = Compose(steps)(dict(img_path=path, img_id=0))
    preprocessor = MODELS.build(settings, default_args=dict(type='ClsDataPreprocessor')).eval()
    inputs = preprocessor(pseudo_collate([packed]), training=False)['inputs']
    image = as_rgb(packed['inputs'].permute(1, 2, 0).numpy())
    return inputs, image, packed['data_samples'].ori_shape[:2]

"""A model with the weights of a checkpoint."""

from typing import Any

from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, init_default_scope
from torch import nn

from mmbixt.backbones.weights import load_whole_state
from mmbixt.check.mistakes import check_trained
from mmbixt.checkpoints.loader import load
from mmbixt.config import test_set, without_downloads


def load_trained(config: Config, checkpoint: str) -> tuple[nn.Module, dict[str, Any]]:
    """The model of a config with the weights of a checkpoint, on the CPU, in evaluation mode.

    Also the names of its classes, and perhaps colours; an error if the test data have others.
    """
    init_default_scope(config.get('default_scope') or 'mmseg')
    state = load(checkpoint, 'cpu')
    model = without_downloads(config.model)
    if 'data_preprocessor' in config:  # outside of the model, as in mmpretrain
        model = {'data_preprocessor': config.data_preprocessor, **model}
    model = revert_sync_batchnorm(MODELS.build(model))
    load_whole_state(model, state, checkpoint)
    dataset = DATASETS.build({**test_set(config), 'lazy_init': True, 'pipeline': []})
    check_trained(model, state, dataset)
    trained = (state.get('meta') or {}).get('dataset_meta') or {}
    return model.eval(), {**dataset.metainfo, **trained}

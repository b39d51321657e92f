"""Figures of attention of each family explain themselves."""

import helpers
import numpy as np
import pytest
import torch
from variants import FAMILIES, VARIANTS, build

from mmbixt.visualization.attention import attention_figures

INPUTS = helpers.image(1, 64, 96)
IMAGE = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
MODELS = FAMILIES | dict(
    bixt_of_one_latent=dict(VARIANTS['bixt'], num_latents=1),
    bixt_classifier=dict(VARIANTS['bixt'], latent_layer=True),
    swin=VARIANTS['swin'],
)


@pytest.mark.parametrize('name', MODELS)
def test_one_picture_that_explains_itself(name):
    model = torch.nn.Module()
    model.backbone = build(MODELS[name]).train()
    (figure,) = attention_figures(model, INPUTS, IMAGE).values()
    assert 'layer' in figure.get_suptitle()
    assert figure.get_supxlabel().endswith('.')
    assert all(ax.get_title() or ax.get_ylabel() for ax in figure.axes)
    assert model.backbone.training
    everywhere = attention_figures(model, INPUTS, IMAGE, layers=['all'], heads=[0])
    assert len(everywhere) == len({*everywhere.values()}) >= 2

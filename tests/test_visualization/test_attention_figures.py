"""Figures of attention of each family explain themselves."""

import helpers
import numpy as np
import pytest
import torch

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.classification import ClassAttentionNeck
from mmbixt.visualization.attention import attention_figures

INPUTS = helpers.image(1, 64, 96)
IMAGE = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
COLUMNAR = dict(embed_dims=32, num_heads=2, depth=2)
STAGES = dict(embed_dims=(32, 64, 64, 64), depths=(1, 1, 2, 1), topks=(1, 2, 4, -2))
WINDOWS = dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4)
MODELS = dict(
    bixt=lambda: BiXT(COLUMNAR, num_latents=6),
    bixt_of_one_latent=lambda: BiXT(COLUMNAR, num_latents=1),
    bixt_classifier=lambda: BiXT(COLUMNAR, num_latents=6, latent_layer=True),
    xcit=lambda: XCiT(COLUMNAR),
    biformer=lambda: BiFormer(STAGES, num_regions=4),
    bisa_swin=lambda: BiSASwin(WINDOWS),
    swin=lambda: BiSASwin(WINDOWS, bisa_stages=()),
)


@pytest.mark.parametrize('name', MODELS)
def test_one_picture_that_explains_itself(name):
    model = torch.nn.Module()
    model.backbone = MODELS[name]().train()
    (figure,) = attention_figures(model, INPUTS, IMAGE).values()
    assert 'layer' in figure.get_suptitle()
    assert figure.get_supxlabel().endswith('.')
    assert all(ax.get_title() or ax.get_ylabel() for ax in figure.axes)
    assert model.backbone.training
    everywhere = attention_figures(model, INPUTS, IMAGE, layers=['all'], heads=[0])
    assert len(everywhere) == len({*everywhere.values()}) >= 2


def test_class_attention_has_a_panel_for_each_head():
    model = torch.nn.Module()
    model.backbone, model.neck = XCiT(COLUMNAR, out_indices=(-1,)), ClassAttentionNeck(32, 2)
    figures = attention_figures(model, INPUTS, IMAGE, layers=['class'])
    assert [*figures] == ['layer_class.0', 'layer_class.1']
    titles = [ax.get_title() for ax in figures['layer_class.1'].axes]
    assert [title.partition(' (')[0] for title in titles[:3]] == ['image', 'head 0', 'head 1']

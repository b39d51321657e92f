"""Figures of attention: their inputs, their names, and the positions of points and boxes."""

import cv2
import helpers
import numpy as np
import pytest
import torch
from mmengine.config import Config

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.visualization.attention import attention_figures
from mmbixt.visualization.attention.loading import load_backbone, prepare_image

INPUTS = helpers.image(1, 64, 96)
IMAGE = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
COLUMNAR = dict(embed_dims=32, num_heads=2, depth=2)
STAGES = dict(embed_dims=(32, 64, 64, 64), depths=(1, 1, 2, 1), topks=(1, 2, 4, -2))
WINDOWS = dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4)
MODELS = dict(
    bixt=lambda: BiXT(COLUMNAR, num_latents=6),
    bixt_of_one_latent=lambda: BiXT(COLUMNAR, num_latents=1),
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


@pytest.mark.parametrize(
    ('name', 'layer', 'box', 'limits'),
    [
        # regions of 4 x 6 cells of 4 pixels; enlarged windows of 4 x 4 cells of 8 pixels
        ('biformer', '0.0', (24, 16, 24, 16), ((0, 96), (30, 0))),
        ('bisa_swin', '1.1', (16, 16, 32, 32), ((16, 48), (48, 16))),
    ],
)
def test_point_is_in_pixels_of_the_image(name, layer, box, limits):
    half = IMAGE[:30:2, ::2]  # 15 x 48 pixels, for 30 x 96 of the inputs
    options = dict(layers=[layer], heads=[0], point=(12, 10), content=(30, 96))
    figures = attention_figures(MODELS[name](), INPUTS, half, **options)
    image, heat_map = figures[f'layer_{layer}'].axes[:2]
    assert (image.get_xlim(), image.get_ylim()) == ((0, 96), (30, 0))
    assert image.get_lines()[0].get_xydata()[0].tolist() == [24, 20]
    assert image.patches[-1].get_bbox().bounds == box
    assert (heat_map.get_xlim(), heat_map.get_ylim()) == limits
    assert heat_map.get_title() in (
        'attention of the point (head 0)',
        'self-attention of the point',
    )


def test_image_is_resized_by_the_test_pipeline_without_padding(tmp_path):
    cfg = Config.fromfile(helpers.CONFIGS / 'bixt/maskrcnn_bixt_ti_3x_coco.py')
    path = str(tmp_path / 'photo.png')
    pixels = np.zeros((30, 40, 3), np.uint8)
    pixels[:, :20, 2] = 200  # red at the left
    cv2.imwrite(path, pixels)
    inputs, image, original = prepare_image(cfg, path)
    assert (original, image.shape, inputs.shape) == ((30, 40), (800, 1067, 3), (1, 3, 800, 1088))
    assert image[400, 10].tolist() == [200, 0, 0]
    expected = torch.tensor([(200 - 123.675) / 58.395, -116.28 / 57.12, -103.53 / 57.375])
    torch.testing.assert_close(inputs[0, :, 400, 10], expected)
    assert not inputs[..., 1067:].any()


@pytest.mark.parametrize('prefix', ['backbone.', ''])
def test_weights_of_a_whole_model_or_of_its_backbone(tmp_path, prefix):
    cfg = Config.fromfile(helpers.CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py')
    cfg.model.backbone.update(arch=COLUMNAR, out_indices=(0, 1))
    state = BiXT(COLUMNAR, out_indices=(0, 1)).state_dict()
    torch.save({f'{prefix}{key}': x for key, x in state.items()}, tmp_path / 'x.pth')
    loaded = load_backbone(cfg, str(tmp_path / 'x.pth'))
    torch.testing.assert_close(loaded.state_dict(), state, rtol=0, atol=0)
    assert not loaded.training


def test_errors():
    for options, message in (
        (dict(layers=['0', '2']), r'no layer 2\. This backbone has 0, 1'),
        (dict(point=(96, 0)), 'outside the image'),
    ):
        with pytest.raises(ValueError, match=message):
            attention_figures(MODELS['bixt'](), INPUTS, IMAGE, **options)
    with pytest.raises(ValueError, match='BiFormer, BiSASwin, not for a Conv2d'):
        attention_figures(torch.nn.Conv2d(3, 3, 1), INPUTS, IMAGE)

"""The pictures as a whole: which there are, what they say, where things are in them."""

import numpy as np
import pytest
import torch
from helpers import image as fill_image
from matplotlib.colors import to_hex

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.visualization.attention import (
    AttentionPictureError,
    attention_figures,
    plan_figures,
    summary_figure,
)
from mmbixt.visualization.attention.bixt import PALETTE, strongest_latents
from mmbixt.visualization.attention.drawing import Panel, common_norm

SIZE = (64, 96)
INPUTS = fill_image(1, *SIZE)
IMAGE = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
COLUMNAR = dict(embed_dims=32, num_heads=2, depth=2)
STAGES = dict(embed_dims=(32, 64, 64, 64), depths=(1, 1, 2, 1), topks=(1, 2, 4, -2))
SWIN = dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4)


def bixt():
    return BiXT(COLUMNAR, num_latents=6)


def xcit():
    return XCiT(COLUMNAR)


def biformer():
    return BiFormer(STAGES, num_regions=4)


def bisa_swin():
    return BiSASwin(SWIN)


def draw(backbone, **options):
    """With what options, all pictures, laid out and painted."""
    figures = attention_figures(backbone, INPUTS, IMAGE, **options)
    for figure in figures.values():
        figure.canvas.draw()
    return figures


def captions(figure):
    return [ax.get_title() for ax in figure.axes if ax.get_title()]


def test_bixt_has_sheets_with_a_latent_at_the_same_place_in_both():
    figures = draw(bixt(), layers=['1'])
    kinds = ['latents_over_image', 'image_over_latents', 'strongest_latents']
    assert list(figures) == [f'layer_01_{kind}' for kind in kinds]
    sheet, other, _ = figures.values()
    assert captions(sheet) == captions(other) == list('012345')
    places = [[ax.get_position().bounds for ax in one.axes[:6]] for one in (sheet, other)]
    np.testing.assert_allclose(*places, atol=0.03)
    title = 'BiXT, layer 1 (mean of 2 heads): where in the image each of the 6 latents looks'
    assert sheet.get_suptitle() == title
    assert len(sheet.axes) == 7  # and one colour bar


def test_default_layers_all_layers_and_whole_stages():
    assert {name[:8] for name in plan_figures(bixt(), INPUTS, IMAGE)} == {'layer_00', 'layer_01'}
    names = list(plan_figures(biformer(), INPUTS, IMAGE))
    assert names == [f'layer_{i}_point_attention' for i in ('0.0', '1.0', '2.1', '3.0')]
    names = list(plan_figures(bisa_swin(), INPUTS, IMAGE))
    assert [name for name in names if 'inverse' in name] == [
        f'layer_{i}_inverse_emphasis' for i in ('0.0', '0.1')
    ]
    assert names[-1] == 'layer_1.1_point_attention'
    assert len(plan_figures(bixt(), INPUTS, IMAGE, layers=['all'])) == 6
    names = list(plan_figures(biformer(), INPUTS, IMAGE, layers=['2']))
    assert names == ['layer_2.0_point_attention', 'layer_2.1_point_attention']


def test_heads():
    names = plan_figures(bixt(), INPUTS, IMAGE, layers=['0'], heads='each')
    assert [name for name in names if 'strongest' in name] == [
        f'layer_00_strongest_latents_head_0{i}' for i in (0, 1)
    ]
    assert captions(draw(xcit(), layers=['0'])['layer_00_query_key_magnitude']) == [
        *('query, head 0', 'query, head 1', 'key, head 0', 'key, head 1')
    ]
    figure = draw(biformer(), layers=['2.1'], heads=1)['layer_2.1_point_attention']
    assert captions(figure) == ['image', 'routed attention, head 1']


def test_swin_and_bisa_swin():
    figures = draw(bisa_swin(), layers=['0.1', '1.1'], point=(40, 30))
    assert captions(figures['layer_0.1_inverse_emphasis']) == [
        f'emphasis, head {i}' for i in range(3)
    ]
    assert 'its share of the output: 0.5' in figures['layer_0.1_inverse_emphasis'].get_suptitle()
    both = ['image', 'self-attention, mean of 3 heads', 'inverse attention, mean of 3 heads']
    assert captions(figures['layer_0.1_point_attention']) == both
    plain = draw(BiSASwin(SWIN, bisa_stages=()), layers=['0'])
    assert list(plain) == ['layer_0.0_point_attention', 'layer_0.1_point_attention']
    assert plain['layer_0.0_point_attention'].get_suptitle().startswith('Swin, layer 0.0')


@pytest.mark.parametrize(
    'make',
    [bixt, xcit, biformer, bisa_swin, lambda: BiSASwin(SWIN, bisa_stages=())],
)
def test_summary(make):
    model = torch.nn.Module()
    model.backbone = make().train()
    figure = summary_figure(model, INPUTS, IMAGE)
    figure.canvas.draw()
    assert 850 < figure.get_figwidth() * figure.dpi < 1250
    assert len(captions(figure)) >= 2
    assert model.backbone.training
    assert summary_figure(torch.nn.Conv2d(3, 3, 1), INPUTS, IMAGE) is None


def test_padding_is_not_drawn_and_the_point_is_in_pixels_of_the_image():
    half = IMAGE[:30:2, ::2]  # 15 x 48 pixels, for 30 x 96 of the inputs
    plan = plan_figures(biformer(), INPUTS, half, layers=['0.0'], point=(12, 10), content=(30, 96))
    with torch.no_grad():
        ax = plan['layer_0.0_point_attention']().axes[0]
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 96), (30, 0))
    point = ax.get_lines()[0].get_xydata()[0]
    assert point.tolist() == [24, 20]
    own = ax.patches[-1]  # a map of 16 x 24 cells in regions of 4 x 6
    assert (own.get_xy(), own.get_width(), own.get_height()) == ((24, 16), 24, 16)


@pytest.mark.parametrize(
    ('make', 'options', 'message'),
    [
        (bixt, dict(layers=['0', '2']), 'no layer 2. This BiXT has 0, 1.'),
        (biformer, dict(layers=['1.1']), 'no layer 1.1. This BiFormer has 0.0, 1.0, 2.0, 2.1, 3.0'),
        (bixt, dict(heads=2), 'no head 2 in layer 0, which has heads 0 to 1'),
        (bixt, dict(point=(96, 3)), 'point 96 3 is outside the image.* x from 0 to 95'),
        (lambda: torch.nn.Conv2d(3, 3, 1), dict(), 'BiXT, XCiT, .* backbone of this model is a Co'),
    ],
)
def test_what_is_not_there(make, options, message):
    with pytest.raises(AttentionPictureError, match=message):
        plan_figures(make(), INPUTS, IMAGE, **options)


def test_strongest_latents_have_the_colours_of_the_legend():
    maps = torch.zeros(12, 1, 4)
    maps[7, 0, :3] = 1
    maps[2, 0, 3] = 1
    panel, handles, named = strongest_latents(maps, 16)
    assert named == [7, 2]
    assert [handle.get_label() for handle in handles] == ['latent 7: 75.0%', 'latent 2: 25.0%']
    shown = [to_hex(colour) for colour in panel.values[0].tolist()]
    assert shown == [PALETTE[0]] * 3 + [PALETTE[1]]


def test_scale_is_symmetric_about_even_attention():
    norm = common_norm([Panel('', torch.tensor([[0.001, 1.0, 8.0]]).repeat(99, 1), 4)])
    assert (norm.vmin, norm.vmax) == (1 / 8, 8)
    assert norm(1.0) == 0.5
    assert common_norm([Panel('', torch.ones(3, 3), 4)]).vmax == 1.1
    holes = torch.tensor([[torch.nan, 2.0]])
    assert common_norm([Panel('', holes, 4)]).vmax == 2

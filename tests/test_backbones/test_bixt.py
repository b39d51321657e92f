import pytest
import torch
from helpers import golden, image, official_parameters, official_state

from mmbixt.backbones import BiXT
from mmbixt.ops import use_ops

GOLDENS = {  # layout: options, batch
    'bixt_ti_l64_d13_p16': (dict(), 2),
    'bixt_ti_l64_d13_p16s8': (dict(patch_stride=8), 1),
    'bixt_ti_cnv_l64_d13_p16': (dict(patch_embed='conv'), 2),
}


@pytest.mark.parametrize('path', ['auto', 'reference'])
@pytest.mark.parametrize('layout', GOLDENS)
def test_golden(layout, path):
    options, batch = GOLDENS[layout]
    backbone = BiXT(out_indices=(2, 5, 8, 11), with_latents=True, **options).eval()
    backbone.load_state_dict(official_state(layout))
    reference = golden(f'{layout}__dense__64x64')
    x = image(batch, 64, 64)
    with torch.no_grad(), use_ops(path):
        tokens, grid = backbone.tokenize(x)
        maps, latents = backbone(x)
    embed = tokens.transpose(1, 2).unflatten(2, grid)
    assert reference.check('embed', embed.numpy()) < 2e-5
    for key, feature_map in zip(('tok3', 'tok6', 'tok9', 'tok12'), maps, strict=True):
        assert reference.check(key, feature_map.numpy()) < 2e-5
    assert reference.check('lat12', latents.numpy()) < 2e-5


def test_golden_of_earlier_latents():
    for layer in (3, 6, 9):
        backbone = BiXT(out_indices=(layer - 1,), with_latents=True).eval()
        backbone.load_state_dict(official_state('bixt_ti_l64_d13_p16'))
        with torch.no_grad():
            _, latents = backbone(image(2, 64, 64))
        reference = golden('bixt_ti_l64_d13_p16__dense__64x64')
        assert reference.check(f'lat{layer}', latents.numpy()) < 2e-5


def test_maps_are_the_same_without_latents():
    with_latents = BiXT(with_latents=True, out_indices=(5, 11)).eval()
    without = BiXT(out_indices=(5, 11)).eval()
    for backbone in (with_latents, without):
        backbone.load_state_dict(official_state('bixt_ti_l64_d13_p16'))
    x = image(1, 48, 64)
    for actual, expected in zip(without(x), with_latents(x)[0], strict=True):
        torch.testing.assert_close(actual, expected)


PARAMETERS = {  # layout of the authors' dense model: options
    'bixt_ti_l64_d13_p16__dense': dict(),
    'bixt_ti_l64_d13_p16s4__dense': dict(patch_stride=4),
    'bixt_ti_cnv_l64_d13_p16__dense': dict(patch_embed='conv'),
    'bixt_ti_cnv_l64_d13_p8__dense': dict(patch_embed='conv', patch_stride=8),
    'bixt_ti_cnv_l64_d13_p4__dense': dict(patch_embed='conv', patch_stride=4),
}
LATENT_UPDATE = 778_176  # of one layer at width 192


@pytest.mark.parametrize('layout', PARAMETERS)
def test_parameters(layout):
    options = PARAMETERS[layout]
    count = sum(p.numel() for p in BiXT(with_latents=True, **options).parameters())
    assert count == official_parameters(layout)
    assert sum(p.numel() for p in BiXT(**options).parameters()) == count - LATENT_UPDATE


def test_parameters_of_the_dense_tiny():
    assert sum(p.numel() for p in BiXT().parameters()) == 14_520_000


def test_position_encoding_follows_the_grid():
    backbone = BiXT(arch=dict(embed_dims=32, num_heads=2, depth=1))
    zeros = torch.zeros(1, 3, 32, 64)
    tokens, _ = backbone.tokenize(zeros)
    wide, _ = backbone.tokenize(torch.zeros(1, 3, 32, 128))
    assert not torch.allclose(tokens[0, 1], wide[0, 1])  # a quarter, an eighth of the width
    torch.testing.assert_close(tokens[0, 3], wide[0, 7])  # the right edge of both


def test_attention_maps_leave_the_forward_as_it_is():
    backbone = BiXT(arch=dict(embed_dims=32, num_heads=2, depth=3), num_latents=5).eval()
    x = image(2, 48, 64)
    before = backbone(x)
    found = backbone.attention_maps(x, layers=(0, 2))
    assert sorted(found) == [0, 2]
    over_tokens, over_latents = found[2]
    assert over_tokens.shape == over_latents.shape == (2, 2, 5, 3, 4)
    torch.testing.assert_close(over_tokens.sum((-2, -1)), torch.ones(2, 2, 5))
    torch.testing.assert_close(over_latents.sum(2), torch.ones(2, 2, 3, 4))
    for actual, expected in zip(backbone(x), before, strict=True):
        assert torch.equal(actual, expected)
    assert not backbone.blocks[0].cross_attention_latents_token.attn._forward_pre_hooks


def test_layers_that_no_output_needs_are_not_built():
    assert len(BiXT(out_indices=(2, 5)).blocks) == 6


def test_stochastic_depth_grows_to_the_layer_that_is_dropped():
    rates = [
        layer.cross_attention_latents_token.drop_path.drop_prob
        for layer in BiXT(drop_path_rate=0.12).blocks
    ]
    torch.testing.assert_close(torch.tensor(rates), torch.arange(12) * 0.01)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(arch='base'), "BiXT: arch='base' is not one of 'tiny', 'small', 'd256', 'd256-ls'"),
        (dict(arch=dict(embed_dims=8)), "missing: .'num_heads', 'depth'."),
        (dict(arch=dict(embed_dims=30, num_heads=4, depth=2)), '30 channels.*4 heads'),
        (dict(patch_stride=32), 'patch_stride=32 is not one of 16, 8, 4'),
        (dict(patch_embed='hybrid'), "patch_embed='hybrid' is not one of 'linear', 'conv'"),
        (dict(token_refiner='conv'), "token_refiner='conv' is not one of None, 'lpi'"),
        (dict(out_indices=(12,)), 'out_indices=.*layers 0 to 11'),
        (dict(arch=None), "BiXT: arch=None is not one of 'tiny'"),
        (dict(depth=0), 'BiXT: depth=0 must be a whole number from 1'),
        (dict(num_latents=0), 'num_latents=0 must be a whole number from 1'),
        (dict(drop_path_rate=1.5), 'drop_path_rate=1.5 must be at least 0 and below 1'),
        (dict(patch_stride=16.0), 'patch_stride=16.0 is not one of 16, 8, 4'),
        (dict(patch_embed=['linear']), 'is not one of'),
    ],
)
def test_wrong_arguments_list_the_valid_ones(options, message):
    with pytest.raises(ValueError, match=message):
        BiXT(**options)


def test_can_be_built_without_memory():
    """On the meta device, as large models are before FSDP shares them out."""
    with torch.device('meta'):
        assert BiXT(drop_path_rate=0.1).latents.is_meta

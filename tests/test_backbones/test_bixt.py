import pytest
import torch
from helpers import formulation, golden, image, official_state

from mmbixt.backbones import BiXT

SMALL = dict(embed_dims=32, num_heads=2, depth=3)

GOLDENS = {  # layout: options, batch
    'bixt_ti_l64_d13_p16': (dict(), 2),
    'bixt_ti_l64_d13_p16s8': (dict(patch_stride=8), 1),
    'bixt_ti_cnv_l64_d13_p16': (dict(patch_embed='conv'), 2),
}


@torch.no_grad()
@pytest.mark.parametrize('layout', GOLDENS)
def test_golden(layout):
    options, batch = GOLDENS[layout]
    backbone = BiXT(latent_layer=True, **options).eval()
    backbone.load_state_dict(official_state(layout))
    reference = golden(f'{layout}__dense__64x64')
    x = image(batch, 64, 64)
    for path in ('fast', 'definition'):
        with formulation(path):
            tokens, grid = backbone.tokenize(x)
            states = [state for _, state in backbone.walk(x, last=11)]
        embed = tokens.transpose(1, 2).unflatten(2, grid)
        assert reference.check('embed', embed.numpy()) < 2e-5
        for layer in (3, 6, 9, 12):
            latents, _, _ = state = states[layer - 1]
            assert reference.check(f'tok{layer}', backbone.feature_map(state).numpy()) < 2e-5
            assert reference.check(f'lat{layer}', latents.numpy()) < 2e-5


@torch.no_grad()
def test_golden_of_fewer_layers():
    """The last built layer is an earlier one, without its update of the latents."""
    state = official_state('bixt_ti_l64_d13_p16')
    reference = golden('bixt_ti_l64_d13_p16__dense__64x64')
    for layer in (3, 6, 9, 12):
        backbone = BiXT(out_indices=(layer - 1,)).eval()
        backbone.load_state_dict(state)
        (feature_map,) = backbone(image(2, 64, 64))
        assert reference.check(f'tok{layer}', feature_map.numpy()) < 2e-5


@pytest.mark.parametrize(('patch_size', 'patch_stride'), [(32, 16), (32, 8), (8, 4), (4, 4)])
@torch.no_grad()
def test_any_patch_size_gives_the_grid_of_the_stride(patch_size, patch_stride):
    backbone = BiXT(SMALL, patch_size=patch_size, patch_stride=patch_stride).eval()
    for height, width in ((64, 48), (33, 70)):
        grid = backbone(image(1, height, width))[-1].shape[2:]
        assert grid == (-(-height // patch_stride), -(-width // patch_stride))

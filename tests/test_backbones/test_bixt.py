import pytest
import torch
from helpers import formulation, golden, image, official_state

from mmbixt.backbones import BiXT

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
            states = [backbone.embed(x)]
            for layer in backbone.layer_list():
                states.append(backbone.step(layer, states[-1]))
        embed = backbone.feature_map(states[0])
        assert reference.check('embed', embed.numpy()) < 2e-5
        for layer in (3, 6, 9, 12):
            latents, _, _ = state = states[layer]
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

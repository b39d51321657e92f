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
    backbone = BiXT(out_indices=(2, 5, 8, 11), with_latents=True, **options).eval()
    backbone.load_state_dict(official_state(layout))
    reference = golden(f'{layout}__dense__64x64')
    x = image(batch, 64, 64)
    for path in ('fast', 'definition'):
        with formulation(path):
            tokens, grid = backbone.tokenize(x)
            maps, latents = backbone(x)
        embed = tokens.transpose(1, 2).unflatten(2, grid)
        keys, values = ('embed', 'tok3', 'tok6', 'tok9', 'tok12'), (embed, *maps)
        for key, value in zip((*keys, 'lat12'), (*values, latents), strict=True):
            assert reference.check(key, value.numpy()) < 2e-5


@torch.no_grad()
def test_golden_of_fewer_layers_with_and_without_latents():
    """The last built layer is an earlier one, with or without its update of the latents."""
    state = official_state('bixt_ti_l64_d13_p16')
    reference = golden('bixt_ti_l64_d13_p16__dense__64x64')
    for layer, with_latents in ((3, True), (6, True), (9, True), (3, False)):
        backbone = BiXT(out_indices=(layer - 1,), with_latents=with_latents).eval()
        backbone.load_state_dict(state)
        out = backbone(image(2, 64, 64))
        maps, latents = out if with_latents else (out, None)
        assert reference.check(f'tok{layer}', maps[0].numpy()) < 2e-5
        if with_latents:
            assert reference.check(f'lat{layer}', latents.numpy()) < 2e-5


def test_attention_maps_do_not_change_the_network():
    backbone = BiXT(arch=dict(embed_dims=32, num_heads=2, depth=3), num_latents=5).eval()
    x = image(2, 48, 64)
    before = backbone(x)
    found = backbone.attention_maps(x, layers=(0, 2))
    assert sorted(found) == [0, 2]
    over_tokens, over_latents = found[2]
    torch.testing.assert_close(over_tokens.sum((-2, -1)), torch.ones(2, 2, 5))
    torch.testing.assert_close(over_latents.sum(2), torch.ones(2, 2, 3, 4))
    for actual, expected in zip(backbone(x), before, strict=True):
        assert torch.equal(actual, expected)
    assert not backbone.blocks[0].cross_attention_latents_token.attn._forward_pre_hooks

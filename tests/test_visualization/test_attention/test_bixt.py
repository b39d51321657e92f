import pytest
import torch
from helpers import assert_close, image

from mmbixt.backbones import BiXT
from mmbixt.ops.heads import join_heads, split_heads
from mmbixt.visualization.attention.bixt import attention_maps

SMALL = dict(embed_dims=32, num_heads=2, depth=2)


@torch.no_grad()
@pytest.mark.parametrize('stride', [16, 8])
def test_maps_times_values_are_what_the_network_computes(look, stride):
    found = look(BiXT(SMALL, num_latents=5, patch_stride=stride), image(1, 40, 55))
    assert list(found) == ['0', '1']
    for layer, (for_latents, for_tokens) in found.values():
        over_tokens, over_latents = attention_maps(layer)
        grid = (-(-40 // stride), -(-55 // stride))
        assert over_tokens.shape == over_latents.shape == (2, 5, *grid)
        assert_close(over_tokens.mean((2, 3)), torch.ones(2, 5))
        assert_close(over_latents.mean(1), torch.ones(2, *grid))
        assert over_tokens.max() > 1.5
        over_tokens, over_latents = over_tokens.flatten(2), over_latents.flatten(2)
        attention, (latents, tokens) = layer.module, layer.inputs
        _, v_latents = split_heads(attention.rv_latents(latents), 2, 2)
        _, v_tokens = split_heads(attention.rv_patches(tokens), 2, 2)
        read = (over_latents / 5).transpose(1, 2) @ v_latents
        assert_close(attention.proj_pat(join_heads(read)), for_tokens)
        if for_latents is not None:
            read = (over_tokens / over_tokens.shape[-1]) @ v_tokens
            assert_close(attention.proj_lat(join_heads(read)), for_latents)

import pytest
import torch
from helpers import assert_close, image

from mmbixt.backbones import BiXT
from mmbixt.visualization.attention.bixt import attention_layers, attention_maps

SMALL = dict(embed_dims=32, num_heads=2, depth=2)


@torch.no_grad()
@pytest.mark.parametrize('stride', [16, 8])
def test_maps_times_values_are_what_the_network_computes(look, stride):
    size = (40, 55)
    backbone = BiXT(SMALL, num_latents=5, patch_stride=stride)
    layers = look(backbone, attention_layers, image(1, *size))
    assert len(layers) == 2
    for layer, inputs, (for_latents, for_tokens) in layers:
        over_tokens, over_latents = attention_maps(backbone, layer, inputs, size)
        grid = (-(-40 // stride), -(-55 // stride))
        assert over_tokens.shape == over_latents.shape == (2, 5, *grid)
        assert_close(over_tokens.mean((2, 3)), torch.ones(2, 5))
        assert_close(over_latents.mean(1), torch.ones(2, *grid))
        assert over_tokens.max() > 1.5
        over_tokens, over_latents = over_tokens.flatten(2), over_latents.flatten(2)
        _, v_latents = layer._split(layer.rv_latents(inputs[0]))
        _, v_tokens = layer._split(layer.rv_patches(inputs[1]))
        read = (over_latents / 5).transpose(1, 2) @ v_latents
        assert_close(layer.proj_pat(layer._join(read)), for_tokens)
        if for_latents is not None:
            read = (over_tokens / over_tokens.shape[-1]) @ v_tokens
            assert_close(layer.proj_lat(layer._join(read)), for_latents)


def test_every_layer_is_there_with_and_without_updates_of_the_latents():
    for options in (dict(), dict(with_latents=True)):
        assert list(attention_layers(BiXT(SMALL, **options))) == ['0', '1']

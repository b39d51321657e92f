import torch
from helpers import assert_close, image

from mmbixt.backbones import XCiT
from mmbixt.ops.cross_covariance import split_channels
from mmbixt.visualization.attention.xcit import magnitude_maps

SMALL = dict(embed_dims=32, num_heads=2, depth=2)
INPUTS = image(1, 70, 100)  # 5 x 7 tokens


@torch.no_grad()
def test_attention_of_what_is_shown_is_what_the_network_computes(look):
    for layer, output in look(XCiT(SMALL), INPUTS).values():
        attention, (tokens, scale) = layer.module, layer.inputs
        queries, keys = attention.normalised_queries_and_keys(tokens)
        shares = (queries @ keys.transpose(-2, -1) * attention.temperature).softmax(-1)
        values = split_channels(attention.qkv(tokens), 2)[2]
        out = (shares @ values).permute(0, 3, 1, 2).flatten(2)
        assert_close(scale * attention.proj(out), output)


@torch.no_grad()
def test_magnitudes_are_those_of_the_normalised_queries_and_keys(look):
    layer, _ = look(XCiT(SMALL), INPUTS)['0']
    both = layer.module.normalised_queries_and_keys(layer.inputs[0])
    for maps, normalised in zip(magnitude_maps(layer).values(), both, strict=True):
        assert maps.shape == (2, 5, 7)
        assert_close(maps.square().mean((1, 2)), torch.ones(2))
        token = normalised[0, 1, :, 2 * 7 + 3]  # head 1, row 2, column 3
        expected = token.square().sum().sqrt() / (16 / 35) ** 0.5
        assert_close(maps[1, 2, 3], expected)
        assert maps.max() > 1.2

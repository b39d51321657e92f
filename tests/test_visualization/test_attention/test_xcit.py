import torch
from helpers import assert_close, image

from mmbixt.backbones import XCiT
from mmbixt.ops.cross_covariance import split_channels
from mmbixt.visualization.attention.xcit import (
    attention_layers,
    magnitude_maps,
)

SMALL = dict(embed_dims=32, num_heads=2, depth=2)
SIZE = (70, 100)  # 5 x 7 tokens


@torch.no_grad()
def test_attention_of_what_is_shown_is_what_the_network_computes(look):
    for layer, (tokens, scale), output in look(XCiT(SMALL), attention_layers, image(1, *SIZE)):
        queries, keys = layer.normalised_queries_and_keys(tokens)
        attention = (queries @ keys.transpose(-2, -1) * layer.temperature).softmax(-1)
        values = split_channels(layer.qkv(tokens), 2)[2]
        out = (attention @ values).permute(0, 3, 1, 2).flatten(2)
        assert_close(scale * layer.proj(out), output)


@torch.no_grad()
def test_magnitudes_are_those_of_the_normalised_queries_and_keys(look):
    backbone = XCiT(SMALL)
    layer, (tokens, _), _ = look(backbone, attention_layers, image(1, *SIZE))[0]
    both = layer.normalised_queries_and_keys(tokens)
    for maps, normalised in zip(magnitude_maps(backbone, layer, tokens, SIZE), both, strict=True):
        assert maps.shape == (2, 5, 7)
        assert_close(maps.square().mean((1, 2)), torch.ones(2))
        token = normalised[0, 1, :, 2 * 7 + 3]  # head 1, row 2, column 3
        expected = token.square().sum().sqrt() / (16 / 35) ** 0.5
        assert_close(maps[1, 2, 3], expected)
        assert maps.max() > 1.2

import pytest
import torch
from helpers import assert_close, image

from mmbixt.backbones import BiFormer
from mmbixt.layers import RoutingAttention
from mmbixt.visualization.attention.biformer import point_attention

SMALL = dict(embed_dims=(32, 64, 64, 64), depths=(1, 1, 1, 1), topks=(1, 2, 4, -2))


def values_of(attention, x):
    """(H,W,C)."""
    return attention.qkv(x[0]).chunk(3, -1)[2]


def output_from(attention, x, shares, cell):
    """What a layer puts into a cell, of what the cell attends to."""
    values = values_of(attention, x)
    heads = values.unflatten(-1, (attention.num_heads, -1))
    out = torch.einsum('hyx,yxhd->hd', shares, heads).flatten()
    if attention.lepe is not None:
        seen = x[0] if getattr(attention, 'lepe_of', '') == 'input' else values
        out = out + attention.lepe(seen.permute(2, 0, 1)[None])[0, :, cell[0], cell[1]]
    last = attention.wo if isinstance(attention, RoutingAttention) else attention.proj
    return last(out)


@torch.no_grad()
@pytest.mark.parametrize(
    'options',
    [
        dict(),
        dict(padding='legacy'),
        dict(arch=SMALL | dict(code='stl-nchw'), padding='legacy'),
        dict(arch=SMALL | dict(code='stl-nchw')),
        dict(topks=(1, 2, 4, -1)),
    ],
)
def test_maps_times_values_are_what_the_network_computes(look, options):
    # feature maps of 21 x 25 cells and less, which 4 x 4 regions do not divide
    backbone = BiFormer(**dict(arch=SMALL, num_regions=4) | options)
    for layer, _ in look(backbone, image(1, 84, 100)).values():
        attention, x = layer.module, layer.inputs[0]
        legacy = getattr(attention, 'padding', '') == 'legacy'
        if legacy:  # what is attended to at the authors' padding is not in a picture: make it zero
            attention.qkv.qkv.bias[-attention.wo.in_features :] = 0
        output = attention(x)
        height, width = x.shape[1:3]
        for cell in {(0, 0), (height // 2, width // 3), (height - 1, width - 1)}:
            found = point_attention(attention, x, cell)
            (maps,) = found.maps.values()
            count = int(maps[0].isfinite().sum())
            if legacy:
                count = len(found.routed) * found.own[2] * found.own[3]
            shares = maps.nan_to_num() / count
            assert_close(output_from(attention, x, shares, cell), output[0][cell])


@torch.no_grad()
def test_regions_of_a_point(look):
    # a feature map of 12 x 16 in regions of 3 x 4, two of them routed
    layer, _ = look(BiFormer(SMALL, num_regions=4), image(1, 96, 128))['1.0']
    found = point_attention(layer.module, layer.inputs[0], (7, 5))
    routes, _ = layer.module.routes(layer.inputs[0])
    assert found.own == (6, 4, 3, 4)
    expected = [divmod(int(region), 4) for region in routes[0, 2 * 4 + 1]]
    assert found.routed == [(3 * row, 4 * column, 3, 4) for row, column in expected]
    inside = torch.zeros(12, 16, dtype=torch.bool)
    for top, left, height, width in found.routed:
        inside[top : top + height, left : left + width] = True
    maps = found.maps['routed attention']
    assert torch.equal(maps.isfinite(), inside.expand(2, -1, -1))
    assert_close(maps.nanmean((1, 2)), torch.ones(2))


@torch.no_grad()
def test_full_attention_routes_nothing_and_sees_everything(look):
    layer, _ = look(BiFormer(SMALL, num_regions=4), image(1, 96, 128))['3.0']
    found = point_attention(layer.module, layer.inputs[0], (1, 2))
    assert (found.own, found.routed) == (None, ())
    assert_close(found.maps['full attention'].mean((1, 2)), torch.ones(8))

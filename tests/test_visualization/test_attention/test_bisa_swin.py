import pytest
import torch
from helpers import assert_close, image
from torch.nn.functional import gelu

from mmbixt.backbones import BiSASwin
from mmbixt.ops.heads import split_heads
from mmbixt.visualization.attention.bisa_swin import emphasis, window_maps, window_point

SMALL = dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4)


@torch.no_grad()
@pytest.mark.parametrize('size', [(64, 64), (44, 60)])  # without and with padding
def test_maps_times_values_are_what_the_network_computes(look, size):
    found = look(BiSASwin(SMALL), image(1, *size)).values()
    assert [layer.module.shift for layer, _ in found] == [0, 2, 0, 2]
    for layer, output in found:
        attention, x = layer.module.w_msa, layer.inputs[0]
        maps = window_maps(layer)
        windows = maps.windows
        qkv = windows.cut(attention.qkv(x), attention.qkv.bias)[0]
        values = qkv.unflatten(-1, (3, attention.num_heads, -1)).transpose(-4, -2)[..., 2, :, :]
        out = maps.over_keys @ values
        if attention.isa is not None:
            tokens = windows.cut(x, x.new_zeros(x.shape[-1]))[0]
            q_hat, v_hat = (
                split_heads(gelu(linear(tokens)), 1, attention.num_heads)[0]
                for linear in (attention.isa.q, attention.isa.v)
            )
            parts = (maps.over_queries, v_hat, q_hat, attention.isa.G)
            out = 0.5 * out + 0.5 * torch.einsum('...ij,...ja,...ib,abc->...ic', *parts)
        out = windows.join(out.transpose(1, 2).flatten(2)[None])
        assert_close(attention.proj(out), output)


@torch.no_grad()
def test_emphasis_is_what_all_values_of_a_window_give_a_query(look):
    layer, _ = look(BiSASwin(SMALL), image(1, 64, 64))['0.0']
    maps = window_maps(layer)
    found = emphasis(maps)
    assert found.shape == (3, 16, 16)
    means = found.unflatten(2, (4, 4)).unflatten(1, (4, 4)).mean((2, 4))
    assert_close(means, torch.ones(3, 4, 4))
    assert found.max() > 1.5
    # window 1 is to the right of the first; its token 6 is in row 1, column 2
    assert_close(found[2, 1, 4 + 2], maps.over_queries[1, 2, 6].sum())


@torch.no_grad()
def test_point_reads_and_chooses_in_its_window(look):
    layer, _ = look(BiSASwin(SMALL), image(1, 64, 64))['0.0']
    maps = window_maps(layer)
    found = window_point(maps, (5, 14))  # window 7 of 4 x 4, its row 1, column 2
    assert found.own == (4, 12, 4, 4)
    inside = (slice(None), slice(4, 8), slice(12, 16))
    reads, chooses = found.maps.values()
    assert_close(reads[inside].flatten(1), 16 * maps.over_keys[7, :, 6])
    assert_close(chooses[inside].flatten(1), 16 * maps.over_queries[7, :, :, 6])
    assert reads.isfinite().sum() == chooses.isfinite().sum() == 3 * 16


@torch.no_grad()
def test_shifted_window_at_the_edge_is_the_part_that_the_point_sees(look):
    layer, _ = look(BiSASwin(SMALL), image(1, 64, 64))['0.1']
    maps = window_maps(layer)
    # the last window joins the corners of the map
    assert window_point(maps, (0, 1)).own == (0, 0, 2, 2)
    assert window_point(maps, (15, 14)).own == (14, 14, 2, 2)
    found = window_point(maps, (15, 7))
    assert found.own == (14, 6, 2, 4)
    assert_close(found.maps['self-attention'].nanmean((1, 2)), torch.ones(3))

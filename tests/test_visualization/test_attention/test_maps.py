"""The attention in the pictures of each family agrees with the outputs of the layers."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from helpers import assert_close, image
from torch import nn
from torch.nn.functional import gelu

from mmbixt.attention import RoutingAttention
from mmbixt.attention.cross_covariance import split_channels
from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.layers.heads import join_heads, split_heads
from mmbixt.visualization.attention import FAMILIES, bisa_swin, bixt
from mmbixt.visualization.attention.biformer import point_attention
from mmbixt.visualization.attention.drawing import Scene

COLUMNAR = dict(embed_dims=32, num_heads=2, depth=2)
STAGES = dict(embed_dims=(32, 64, 64, 64), depths=(1, 1, 1, 1), topks=(1, 2, 4, -2))
NCHW = dict(arch=STAGES | dict(code='stl-nchw'))
LEGACY = dict(padding='legacy')
WINDOWS = dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4)


@torch.no_grad()
def layers_of(backbone: nn.Module, x: torch.Tensor) -> Iterator[tuple]:
    """Recorded layers, their outputs, and a function that returns their heat maps in a picture."""
    for parameter in backbone.parameters():  # attention is almost uniform with initial weights
        parameter.add_(torch.randn_like(parameter), alpha=0.2)
    scene = Scene(np.zeros((8, 8, 3)), *x.shape[2:], (0, 0))
    pictures = FAMILIES[type(backbone)](backbone.eval(), x, scene)

    def heat_maps(layer: tuple, kind: str) -> torch.Tensor:
        images = [ax.get_images() for ax in dict(pictures.draw(layer))[kind].axes]
        shown = [two[1].get_array().filled(np.nan) for two in images if len(two) == 2]
        return torch.from_numpy(np.stack(shown))

    for layer in pictures.record(list(pictures.attention_layers(backbone))):
        yield layer, layer.module(*layer.inputs), partial(heat_maps, layer)


@pytest.mark.parametrize('stride', [16, 8])
@torch.no_grad()
def test_bixt_attention_times_values_is_the_output(stride):
    backbone = BiXT(COLUMNAR, num_latents=5, patch_stride=stride)
    for layer, (for_latents, for_tokens), heat_maps in layers_of(backbone, image(1, 40, 55)):
        over_tokens, over_latents = bixt.attention_maps(layer)
        assert_close(heat_maps('latents_over_image'), over_tokens.mean(0))
        assert_close(heat_maps('image_over_latents'), over_latents.mean(0))
        over_tokens, over_latents = over_tokens.flatten(2), over_latents.flatten(2)
        attention, (latents, tokens) = layer.module, layer.inputs
        _, v_latents = split_heads(attention.rv_latents(latents), 2, 2)
        _, v_tokens = split_heads(attention.rv_patches(tokens), 2, 2)
        read = (over_latents / 5).transpose(1, 2) @ v_latents
        assert_close(attention.proj_pat(join_heads(read)), for_tokens)
        if for_latents is not None:
            read = (over_tokens / over_tokens.shape[-1]) @ v_tokens
            assert_close(attention.proj_lat(join_heads(read)), for_latents)


@torch.no_grad()
def test_xcit_queries_and_keys_give_the_output_and_the_magnitudes():
    for layer, output, heat_maps in layers_of(XCiT(COLUMNAR), image(1, 70, 100)):  # 5 x 7 tokens
        attention, (tokens,) = layer.module, layer.inputs
        queries, keys = attention.normalised_queries_and_keys(tokens)
        shares = (queries @ keys.transpose(-2, -1) * attention.temperature).softmax(-1)
        values = split_channels(attention.qkv(tokens), 2)[2]
        out = (shares @ values).permute(0, 3, 1, 2).flatten(2)
        assert_close(attention.proj(out), output)
        magnitudes = torch.cat((queries, keys), 1)[0].square().sum(1).sqrt() / (16 / 35) ** 0.5
        assert_close(heat_maps('query_key_magnitude').flatten(1), magnitudes)


def biformer_output(attention, x, shares, cell):
    """The output (C,) of a layer in a cell, from its attention ``shares`` (h,H,W)."""
    values = attention.qkv(x[0]).chunk(3, -1)[2]
    heads = values.unflatten(-1, (attention.num_heads, -1))
    out = torch.einsum('hyx,yxhd->hd', shares, heads).flatten()
    if attention.lepe is not None:
        seen = x[0] if getattr(attention, 'lepe_of', '') == 'input' else values
        out = out + attention.lepe(seen.permute(2, 0, 1)[None])[0, :, cell[0], cell[1]]
    last = attention.wo if isinstance(attention, RoutingAttention) else attention.proj
    return last(out)


@pytest.mark.parametrize(
    'options', [dict(), LEGACY, NCHW, NCHW | LEGACY, dict(topks=(1, 2, 4, -1))]
)
@torch.no_grad()
def test_biformer_attention_times_values_is_the_output(options):
    # feature maps of 21 x 25 cells and less, which 4 x 4 regions do not divide
    backbone = BiFormer(**dict(arch=STAGES, num_regions=4) | options)
    for layer, _, heat_maps in layers_of(backbone, image(1, 84, 100)):
        attention, x = layer.module, layer.inputs[0]
        legacy = getattr(attention, 'padding', '') == 'legacy'
        if legacy:  # attention to the authors' padding is not in the pictures: make its values 0
            attention.qkv.qkv.bias[-attention.wo.in_features :] = 0
        output = attention(x)
        height, width = x.shape[1:3]
        for cell in {(0, 0), (height // 2, width // 3), (height - 1, width - 1)}:
            found = point_attention(layer, cell)
            (maps,) = found.maps.values()
            if cell == (0, 0):
                shown = heat_maps('point_attention').nan_to_num()
                assert_close(shown, maps.mean(0, keepdim=True).nan_to_num())
            count = int(maps[0].isfinite().sum())
            if legacy:
                count = len(found.routed) * found.own[2] * found.own[3]
            inside = torch.full(maps.shape[1:], not found.routed)
            for top, left, rows, columns in found.routed:
                inside[top : top + rows, left : left + columns] = True
            assert torch.equal(maps[0].isfinite(), inside)
            shares = maps.nan_to_num() / count
            assert_close(biformer_output(attention, x, shares, cell), output[0][cell])


@pytest.mark.parametrize('size', [(64, 64), (44, 60)])  # without and with padding
@torch.no_grad()
def test_bisa_swin_attention_times_values_is_the_output(size):
    for layer, output, _ in layers_of(BiSASwin(WINDOWS), image(1, *size)):
        attention, x = layer.module.w_msa, layer.inputs[0]
        over_keys, over_queries, windows = bisa_swin.window_maps(layer)
        tokens = windows.cut(x)[0]
        values = split_heads(attention.qkv(tokens), 3, attention.num_heads)[2]
        out = over_keys @ values
        if attention.isa is not None:
            q_hat, v_hat = (
                split_heads(gelu(linear(tokens)), 1, attention.num_heads)[0]
                for linear in (attention.isa.q, attention.isa.v)
            )
            parts = (over_queries, v_hat, q_hat, attention.isa.G)
            out = 0.5 * out + 0.5 * torch.einsum('...ij,...ja,...ib,abc->...ic', *parts)
        out = windows.join(out.transpose(1, 2).flatten(2)[None])
        assert_close(attention.proj(out), output)


@torch.no_grad()
def test_bisa_swin_emphasis_and_point_are_in_the_right_cells():
    # 16 x 16 cells in windows of 4 x 4
    (layer, _, heat_maps), (shifted, *_), *_ = layers_of(BiSASwin(WINDOWS), image(1, 64, 64))
    over_keys, over_queries, _ = bisa_swin.window_maps(layer)
    # window 7 is in rows 4 to 7, columns 12 to 15; its token 6 is in row 5, column 14
    shown = heat_maps('inverse_emphasis')
    assert_close(shown[:, 4:8, 12:].flatten(1), over_queries[7].sum(-1))
    reads, chooses = bisa_swin.window_point(layer, (5, 14)).maps.values()
    assert_close(reads[:, 4:8, 12:].flatten(1), 16 * over_keys[7, :, 6])
    assert_close(chooses[:, 4:8, 12:].flatten(1), 16 * over_queries[7, :, :, 6])
    # the last shifted window joins corners of the image: the part that the mask leaves to the point
    point = bisa_swin.window_point(shifted, (15, 7))
    assert point.own == (14, 6, 2, 4)
    assert_close(point.maps['self-attention'].nanmean((1, 2)), torch.ones(3))

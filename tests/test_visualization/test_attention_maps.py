"""The attention in the pictures of each family agrees with the outputs of the layers."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from helpers import assert_close, image
from torch import Tensor, nn
from torch.nn.functional import gelu

from mmbixt.attention.cross_covariance import split_channels
from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.classification import ClassAttentionNeck
from mmbixt.layers.softmax_attention import join_heads, split_heads
from mmbixt.visualization.attention import (
    attention_layers,
    biformer,
    bisa_swin,
    bixt,
    class_attention,
    record_layers,
    xcit,
)
from mmbixt.visualization.attention.drawing import View
from mmbixt.visualization.attention.layer import Layer

COLUMNAR = dict(embed_dims=32, num_heads=2, depth=2)
STAGES = dict(embed_dims=(32, 64, 64, 64), depths=(1, 1, 1, 1), topks=(1, 2, 4, -2))
NCHW = dict(arch=STAGES | dict(code='stl-nchw'))
LEGACY = dict(padding='legacy')
WINDOWS = dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4)


@torch.no_grad()
def layers_of(model: nn.Module, x: Tensor) -> Iterator[tuple[Layer, Tensor, list[Tensor]]]:
    """Recorded layers, their outputs, and the heat maps in their pictures of the first token."""
    for parameter in model.parameters():  # attention is almost uniform with initial weights
        parameter.add_(torch.randn_like(parameter), alpha=0.2)
    view, layers = View(np.zeros((8, 8, 3)), *x.shape[2:], (0, 0)), attention_layers(model)
    for layer in record_layers(model, x, [*layers]):
        images = [ax.get_images() for ax in layers[layer.name].drawer.draw(layer, view).axes]
        shown = [two[1].get_array().filled(np.nan) for two in images if len(two) == 2]
        maps = [torch.from_numpy(one) for one in shown if one.ndim == 2]
        yield layer, layer.module(*layer.inputs), maps


@pytest.mark.parametrize('stride', [16, 8])
@torch.no_grad()
def test_bixt_attention_times_values_is_the_output(stride):
    backbone = BiXT(COLUMNAR, num_latents=5, patch_stride=stride)
    for layer, (for_latents, for_tokens), shown in layers_of(backbone, image(1, 40, 55)):
        over_tokens, over_latents = bixt.attention_maps(layer)
        for drawn, maps in zip((shown[:4], shown[4:]), (over_tokens, over_latents), strict=True):
            means = list(maps.mean(0))
            assert all(any(one.allclose(mean) for mean in means) for one in drawn)
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
def test_all_latents_of_the_last_layer_of_a_classifier():
    """The tokens do not attend there; other layers draw the same panels with ``all_latents``."""
    backbone = BiXT(COLUMNAR | dict(depth=1), num_latents=5, latent_layer=True)
    (first, *_), (last, output, shown) = layers_of(backbone, image(1, 40, 55))
    maps, _ = bixt.attention_maps(last)
    assert_close(torch.stack(shown), maps.mean(0))
    _, values = split_heads(last.module.rv_patches(last.inputs[1]), 2, 2)
    read = (maps.flatten(2) / values.shape[2]) @ values
    assert_close(last.module.proj_lat(join_heads(read)), output)
    view = View(np.zeros((8, 8, 3)), 40, 55, (0, 0))
    panels = bixt.draw(first._replace(all_latents=True), view).axes[:5]
    assert [ax.get_title() for ax in panels] == [f'latent {i}' for i in range(5)]


@torch.no_grad()
def test_class_attention_times_values_is_the_output():
    model = nn.Module()
    model.backbone, model.neck = XCiT(COLUMNAR, out_indices=(1,)), ClassAttentionNeck(32, 2)
    *_, (layer, output, shown) = layers_of(model, image(1, 70, 100))
    assert layer.name == 'class.1'
    to_itself, maps = class_attention.attention_maps(layer)
    assert_close(torch.stack(shown), maps)
    values = split_heads(layer.module.qkv(layer.inputs[0]), 3, 2)[2]
    itself = to_itself[:, None]
    shares = torch.cat((itself, (1 - itself) * maps.flatten(1) / 35), 1)[None, :, None]  # 5 x 7
    assert_close(layer.module.proj(join_heads(shares @ values)), output)


@torch.no_grad()
def test_xcit_attention_times_values_is_the_output():
    for layer, output, shown in layers_of(XCiT(COLUMNAR), image(1, 70, 100)):  # 5 x 7 tokens
        queries, keys, attention = xcit.attention_maps(layer)
        values = split_channels(layer.module.qkv(layer.inputs[0]), 2)[2]
        assert_close(layer.module.proj((attention @ values).permute(0, 3, 1, 2).flatten(2)), output)
        cosines = torch.einsum('hiyx,hjyx->hij', queries, keys) / 35
        assert_close((layer.module.temperature * cosines).softmax(-1), attention)
        *pairs, long_queries, long_keys = shown
        for maps, found in ((queries, long_queries), (keys, long_keys)):
            lengths = maps.flatten(0, 1).norm(dim=0)
            low, high = lengths.min(), lengths.max()
            assert_close(found, -3 + 6 * (lengths - low) / (high - low))
        for head, (query, key, product) in enumerate(zip(*[iter(pairs)] * 3, strict=True)):
            i, j = divmod(int(attention[head].argmax()), 16)
            assert_close(query, queries[head, i])
            assert_close(key, keys[head, j])
            assert_close(product.mean(), cosines[head, i, j])


def biformer_output(attention, x, shares, cell):
    """The output (C,) of a layer in a cell, from its attention ``shares`` (h,H,W)."""
    values = attention.qkv(x[0]).chunk(3, -1)[2]
    heads = values.unflatten(-1, (attention.num_heads, -1))
    out = torch.einsum('hyx,yxhd->hd', shares, heads).flatten()
    if attention.lepe is not None:
        seen = x[0] if getattr(attention, 'lepe_of', '') == 'input' else values
        out = out + attention.lepe(seen.permute(2, 0, 1)[None])[0, :, cell[0], cell[1]]
    return attention.wo(out)


@pytest.mark.parametrize('options', [dict(), LEGACY, NCHW, NCHW | LEGACY])
@torch.no_grad()
def test_biformer_attention_times_values_is_the_output(options):
    # feature maps of 21 x 25 cells and less, which 4 x 4 regions do not divide
    backbone = BiFormer(**dict(arch=STAGES, num_regions=4) | options)
    for layer, _, (shown,) in layers_of(backbone, image(1, 84, 100)):
        attention, x = layer.module, layer.inputs[0]
        first = biformer.point_attention(layer, (0, 0)).maps.mean(0)
        assert_close(shown.nan_to_num(), first.nan_to_num())
        legacy = attention.padding == 'legacy'
        if legacy:  # attention to the authors' padding is not in the pictures: make its values 0
            attention.qkv.qkv.bias[-attention.wo.in_features :] = 0
        output = attention(x)
        height, width = x.shape[1:3]
        for cell in {(0, 0), (height // 2, width // 3), (height - 1, width - 1)}:
            maps, own, routed = biformer.point_attention(layer, cell)
            count = len(routed) * own[2] * own[3] if legacy else int(maps[0].isfinite().sum())
            inside = torch.zeros(maps.shape[1:], dtype=torch.bool)
            for top, left, rows, columns in routed:
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
def test_bisa_swin_maximum_and_point_are_in_the_right_cells():
    # 16 x 16 cells in windows of 4 x 4
    (layer, _, shown), (shifted, *_), *_ = layers_of(BiSASwin(WINDOWS), image(1, 64, 64))
    over_keys, over_queries, _ = bisa_swin.window_maps(layer)
    # window 7 is in rows 4 to 7, columns 12 to 15; its token 6 is in row 5, column 14
    assert_close(shown[2][4:8, 12:].flatten(), 16 * over_queries[7].amax(-1).mean(0))
    reads, goes = bisa_swin.window_point(layer, (5, 14))
    assert_close(reads[:, 4:8, 12:].flatten(1), 16 * over_keys[7, :, 6])
    assert_close(goes[:, 4:8, 12:].flatten(1), 16 * over_queries[7, :, :, 6])
    # the last shifted window joins corners of the image: the part that the mask leaves to the point
    reads, _ = bisa_swin.window_point(shifted, (15, 7))
    assert reads[0].isfinite().nonzero().unique(dim=0).tolist() == [
        [row, column] for row in (14, 15) for column in (6, 7, 8, 9)
    ]
    assert_close(reads.nanmean((1, 2)), torch.ones(3))
    shifted.module.w_msa.qkv.weight.zero_()  # uniform attention, also where parts are masked
    shifted.module.w_msa.qkv.bias.zero_()
    shifted.module.w_msa.relative_position_bias_table.zero_()
    assert_close(bisa_swin.highest_inverse(shifted), torch.ones(3, 16, 16))

"""The attention in the pictures of each family agrees with the outputs of the layers."""

from pathlib import Path

import cv2
import documents
import numpy as np
import pytest
import torch
from helpers import CONFIGS, assert_close, image
from torch import nn
from torch.nn.functional import gelu

from mmbixt.attention.cross_covariance import split_channels
from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.classification import ClassAttentionNeck
from mmbixt.config import PROJECTS
from mmbixt.layers.softmax_attention import join_heads, split_heads
from projects import attention
from projects.attention import biformer, bisa_swin, bixt, xcit
from projects.attention.drawing import View

COLUMNAR = dict(embed_dims=32, num_heads=2, depth=2)
STAGES = dict(embed_dims=(32, 64, 64, 64), depths=(1, 1, 1, 1), topks=(1, 2, 4, -2))
WINDOWS = dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4)


@torch.no_grad()
def layers_of(model, x):
    """Recorded layers, their outputs, and the heat maps in their pictures of the first token."""
    for parameter in model.parameters():  # attention is almost uniform with initial weights
        parameter.add_(torch.randn_like(parameter), alpha=0.2)
    view = View(np.zeros((8, 8, 3)), *x.shape[2:])
    for layer in attention.record_layers(model, x, [*attention.attention_layers(model)]):
        images = [
            ax.get_images() for ax in attention.DRAWN_BY[type(layer.module)](layer, view).axes
        ]
        shown = [two[1].get_array().filled(np.nan) for two in images if len(two) == 2]
        maps = [torch.from_numpy(one) for one in shown if one.ndim == 2]
        yield layer, layer.module(*layer.inputs), maps


@torch.no_grad()
def test_bixt_attention_times_values_is_the_output():
    backbone = BiXT(COLUMNAR, num_latents=5, patch_stride=8, latent_layer=True)
    for layer, output, shown in layers_of(backbone, image(1, 40, 55)):
        attention, (latents, tokens) = layer.module, layer.inputs
        over_tokens, over_latents = bixt.matrices(attention, *layer.inputs)
        v_tokens = split_heads(attention.rv_patches(tokens), 2, 2)[1]
        for_latents = attention.proj_lat(join_heads(over_tokens @ v_tokens))
        pictures = (over_tokens[0].mean(0) * 35).unflatten(1, (5, 7))
        if over_latents is None:  # the last layer, where the tokens do not attend
            assert_close(for_latents, output)
            assert_close(torch.stack(shown), pictures)
            continue
        assert_close(for_latents, output[0])
        v_latents = split_heads(attention.rv_latents(latents), 2, 2)[1]
        read = over_latents.transpose(2, 3) @ v_latents
        assert_close(attention.proj_pat(join_heads(read)), output[1])
        pictures = *pictures, *(over_latents[0].mean(0) * 5).unflatten(1, (5, 7))
        assert all(any(x.allclose(one) for one in pictures) for x in shown)


@torch.no_grad()
def test_xcit_attention_times_values_is_the_output():
    model = nn.Module()
    model.backbone, model.neck = XCiT(COLUMNAR, out_indices=(1,)), ClassAttentionNeck(32, 2)
    *layers, (last, output, shown) = layers_of(model, image(1, 70, 100))  # 5 x 7 tokens
    shares = xcit.class_matrices(last.module, *last.inputs)
    others = shares[0, :, 1:]
    assert_close(torch.stack(shown).flatten(1), others / others.mean(1, keepdim=True))
    values = split_heads(last.module.qkv(last.inputs[0]), 3, 2)[2]
    assert_close(last.module.proj(join_heads(shares[:, :, None] @ values)), output)
    for layer, output, shown in layers[:2]:
        queries, keys, attention = xcit.matrices(layer.module, *layer.inputs)
        values = split_channels(layer.module.qkv(layer.inputs[0]), 2)[2]
        assert_close(layer.module.proj((attention @ values).permute(0, 3, 1, 2).flatten(2)), output)
        cosines = queries @ keys.transpose(2, 3)
        assert_close((layer.module.temperature * cosines).softmax(-1), attention)
        queries, keys = (x[0].unflatten(2, (5, 7)) * 35**0.5 for x in (queries, keys))
        *_, long_queries, long_keys = shown
        for maps, found in ((queries, long_queries), (keys, long_keys)):
            lengths = maps.flatten(0, 1).norm(dim=0)
            low, high = lengths.aminmax()
            assert_close(found, -3 + 6 * (lengths - low) / (high - low))
        i, j = divmod(int(attention[0, 0].argmax()), 16)
        assert_close(torch.stack(shown[:2]), torch.stack((queries[0, i], keys[0, j])))
        assert_close(shown[2].mean(), cosines[0, 0, i, j])


@pytest.mark.parametrize('options', [dict(), dict(padding='legacy')])
@torch.no_grad()
def test_biformer_attention_times_values_is_the_output(options):
    # feature maps of 21 x 25 cells and less, which 4 x 4 regions do not divide
    backbone = BiFormer(STAGES, num_regions=4, **options)
    for layer, _, (shown,) in layers_of(backbone, image(1, 84, 100)):
        attention, x = layer.module, layer.inputs[0]
        assert_close(shown.nan_to_num(), biformer.of_point(layer, (0, 0))[0].mean(0).nan_to_num())
        if options:  # attention to the authors' padding is not in the pictures: make its values 0
            attention.qkv.qkv.bias[-attention.wo.in_features :] = 0
        output, values = attention(x), attention.qkv(x).chunk(3, -1)[2]
        local = attention.lepe(values.permute(0, 3, 1, 2))[0]
        values = values[0].unflatten(-1, (attention.num_heads, -1))
        height, width = x.shape[1:3]
        for cell in {(0, 0), (height // 2, width // 3), (height - 1, width - 1)}:
            maps, (_, _, *sides), routed = biformer.of_point(layer, cell)
            inside = torch.zeros(height, width, dtype=torch.bool)
            for top, left, rows, columns in routed:
                inside[top : top + rows, left : left + columns] = True
            assert torch.equal(maps[0].isfinite(), inside)
            count = len(routed) * np.prod(sides) if options else int(inside.sum())
            read = torch.einsum('hyx,yxhd->hd', maps.nan_to_num() / count, values).flatten()
            assert_close(attention.wo(read + local[:, *cell]), output[0][cell])


@pytest.mark.parametrize('size', [(64, 64), (44, 60)])  # without and with padding
@torch.no_grad()
def test_bisa_swin_attention_times_values_is_the_output(size):
    for layer, output, _ in layers_of(BiSASwin(WINDOWS), image(1, *size)):
        attention, (x, windows, _) = layer.module.w_msa, layer.inputs
        over_keys, over_queries = bisa_swin.matrices(layer.module, *layer.inputs)
        tokens = windows.cut(x)
        out = over_keys @ split_heads(attention.qkv(tokens), 3, attention.num_heads)[2]
        if hasattr(attention, 'isa'):
            q_hat, v_hat = (
                split_heads(gelu(linear(tokens)), 1, attention.num_heads)[0]
                for linear in (attention.isa.q, attention.isa.v)
            )
            parts = (over_queries, v_hat, q_hat, attention.isa.G)
            out = 0.5 * out + 0.5 * torch.einsum('...ij,...ja,...ib,abc->...ic', *parts)
        assert_close(attention.proj(windows.join(join_heads(out))), output)


@torch.no_grad()
def test_bisa_swin_maximum_and_point_are_in_the_right_cells():
    # 16 x 16 cells in windows of 4 x 4
    (layer, _, shown), (shifted, *_), *_ = layers_of(BiSASwin(WINDOWS), image(1, 64, 64))
    over_keys, over_queries = (x[0] for x in bisa_swin.matrices(layer.module, *layer.inputs))
    # window 7 is in rows 4 to 7, columns 12 to 15; its token 6 is in row 5, column 14
    assert_close(shown[2][4:8, 12:].flatten(), 16 * over_queries[7].amax(-1).mean(0))
    reads, goes, _ = bisa_swin.of_point(layer, (5, 14))
    assert_close(reads[:, 4:8, 12:].flatten(1), 16 * over_keys[7, :, 6])
    assert_close(goes[:, 4:8, 12:].flatten(1), 16 * over_queries[7, :, :, 6])
    # the last shifted window joins corners of the image: the part that the mask leaves to the point
    reads, *_ = bisa_swin.of_point(shifted, (15, 7))
    assert reads[0].isfinite().nonzero().unique(dim=0).tolist() == [
        [row, column] for row in (14, 15) for column in (6, 7, 8, 9)
    ]
    assert_close(reads.nanmean((1, 2)), torch.ones(3))
    attention = shifted.module.w_msa  # uniform attention, also where parts are masked
    for weight in (*attention.qkv.parameters(), attention.relative_position_bias_table):
        weight.zero_()
    assert_close(bisa_swin.of_point(shifted, (0, 0))[2], torch.ones(3, 16, 16))


def test_pictures_of_a_point(within, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arch, base = dict(STAGES, depths=(2, 1, 2, 1)), CONFIGS / 'biformer/semfpn_biformer_t_ade20k.py'
    model = dict(backbone=dict(arch=dict(_delete_=True, **arch)))
    Path('small.py').write_text(f'_base_ = {str(base)!r}\nmodel = {model}')
    state = BiFormer(arch).state_dict()
    torch.save({f'backbone.{key}': value for key, value in state.items()}, 'x.pth')
    cv2.imwrite('dog.jpg', np.zeros((30, 40, 3), np.uint8))
    arguments = 'small.py', 'x.pth', 'dog.jpg', '--point', 39, 29, '--layers', '0.1', '2'
    done = within(PROJECTS / 'attention/visualize_attention.py', *arguments)
    files = [f'work_dirs/attention/dog/layer_{i}.png' for i in ('0.1', '2.0', '2.1')]
    assert done.stdout.splitlines()[-3:] == files
    assert 'dog.jpg: 40 x 30 pixels, loaded as' in done.stdout
    assert all(cv2.imread(file).shape[1] > 800 for file in files)


def test_page():
    names = dict(model=XCiT(COLUMNAR | dict(depth=12)), inputs=image(1, 64, 96))
    exec(
        documents.shown('attention figures')[0], names | dict(image=np.zeros((64, 96, 3), np.uint8))
    )
    names = dict(images=image(2, 64, 96))
    exec(documents.shown('plain attention')[0], names)
    assert names['over_tokens'].shape == names['over_latents'].shape == (2, 6, 64, 24)
    assert names['routes'].shape == (2, 64, 1)

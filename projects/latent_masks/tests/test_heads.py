"""Heads and whole models for mmseg and mmdet, with MaskFormer's losses."""

import numpy as np
import pytest
import torch
from helpers import assert_close
from mmdet.testing import demo_mm_inputs
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from torch.nn.functional import softmax

from mmbixt.config import read_config
from projects.latent_masks import LatentMaskHead, SemanticLatentMaskHead
from projects.latent_masks.pictures import latent_masks_figure

LAYERS, BATCH, LATENTS, C = 2, 2, 6, 8
SMALL = dict(embed_dims=32, num_heads=2, depth=12)


def inputs():
    """Feature maps and latents of two layers."""
    maps = [torch.randn(BATCH, C, 6, 4) for _ in range(LAYERS)]
    return [*maps, *(torch.randn(BATCH, LATENTS, C) for _ in range(LAYERS))]


def semantic_samples():
    labels = torch.randint(0, 5, (BATCH, 1, 24, 16))
    labels[:, :, :3] = 255
    meta = dict(img_shape=(24, 16))
    return [SegDataSample(gt_sem_seg=PixelData(data=x), metainfo=meta) for x in labels]


def test_masks_are_products_of_latents_and_tokens():
    head = LatentMaskHead([C] * LAYERS, num_queries=LATENTS)
    x = inputs()
    classes, masks = head(x)
    assert classes.shape == (LAYERS, BATCH, LATENTS, 80 + 53 + 1)
    assert masks.shape == (LAYERS, BATCH, LATENTS, 6, 4)
    token = head.token_embed(head.token_norm(torch.cat([x[0][1, :, 3, 2], x[1][1, :, 3, 2]])))
    for layer in range(LAYERS):
        latent = head.latent_norm(x[LAYERS + layer][1, 5])
        assert_close(masks[layer, 1, 5, 3, 2], head.mask_embed(latent) @ token)
        assert_close(classes[layer, 1, 5], head.cls_embed(latent))


def test_scores_of_pixels():
    head = SemanticLatentMaskHead(150, in_channels=[C] * LAYERS, num_queries=LATENTS)
    x = inputs()
    scores = head.predict(x, [dict(img_shape=(6, 4))], {})
    classes, masks = (of_layers[-1] for of_layers in head(x))
    each = softmax(classes, -1)[..., :-1, None, None] * masks.sigmoid()[:, :, None]
    assert_close(scores, each.sum(1))


@torch.no_grad()
def test_losses_in_half_precision():
    """Also of images with more pixels than the largest number of float16."""
    head = SemanticLatentMaskHead(5, in_channels=[C] * LAYERS, num_queries=LATENTS)
    labels = torch.arange(6).repeat_interleave(256 * 64).view(1, 256, 384)
    sample = SegDataSample(gt_sem_seg=PixelData(data=labels), metainfo=dict(img_shape=(256, 384)))
    x = inputs()
    expected = head.loss(x, [sample] * BATCH, {})
    with torch.autocast('cpu', torch.float16):
        losses = head.loss(x, [sample] * BATCH, {})
    for name, loss in losses.items():
        assert_close(loss, expected[name], 0.05)


def small_model(name):
    cfg = read_config(name)
    init_default_scope(cfg.default_scope)
    if cfg.default_scope == 'mmseg':
        cfg.model.data_preprocessor.size = (24, 16)
    cfg.model.backbone.update(arch=SMALL, num_latents=LATENTS, init_cfg=None)
    cfg.model.neck.update(in_channels=32, norm_cfg=dict(type='BN'))
    head = cfg.model.get('panoptic_head') or cfg.model.decode_head
    head.update(in_channels=[32] * 4, num_queries=LATENTS)
    model = MODELS.build(cfg.model)
    model.init_weights()
    return model


def train(model, data):
    losses = model.train()(**model.data_preprocessor(data, True), mode='loss')
    total, _ = model.parse_losses(losses)
    total.backward()
    assert total.isfinite()
    assert len(losses) == 4 * 3  # layers; class, mask, dice
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


def test_semantic_segmentation():
    model = small_model('latentmask_bixt_ti_ade20k')
    images = [torch.randint(0, 255, (3, 24, 16), dtype=torch.uint8) for _ in range(BATCH)]
    data = dict(inputs=images, data_samples=semantic_samples())
    train(model, data)
    for sample in data['data_samples']:
        sample.set_metainfo(dict(ori_shape=(48, 32)))
    predicted = model.eval()(**model.data_preprocessor(data, False), mode='predict')
    assert [x.pred_sem_seg.data.shape for x in predicted] == [(1, 48, 32)] * BATCH


@torch.no_grad()
def test_padding_in_tests_is_cut_off():
    model = small_model('latentmask_bixt_ti_ade20k').eval()
    model.data_preprocessor.test_cfg = dict(size=(32, 32))
    image = torch.randint(0, 255, (3, 24, 16), dtype=torch.uint8)
    sample = SegDataSample(metainfo=dict(img_shape=(24, 16), ori_shape=(24, 16)))
    data = model.data_preprocessor(dict(inputs=[image], data_samples=[sample]), False)
    whole = model.encode_decode(data['inputs'], [dict(img_shape=(32, 32))])
    for test_cfg in ({}, dict(mode='slide', crop_size=(32, 32), stride=(32, 32))):
        model.test_cfg.update(test_cfg)
        scores = model(**data, mode='predict')[0].seg_logits.data
        assert torch.equal(scores, whole[0, :, :24, :16])


def test_masks_are_drawn_in_their_places():
    """Also if the network pads the image: here from 40 to 48 pixels, 12 cells of 4 pixels."""
    model = small_model('latentmask_bixt_ti_ade20k').eval()
    names = [str(i) for i in range(150)]
    pixels = np.zeros((40, 40, 3), np.uint8)
    figure = latent_masks_figure(model, torch.randn(1, 3, 40, 40), pixels, names)
    masks = figure.axes[2].images[-1]
    assert (masks.get_array().shape[:2], masks.get_extent()) == ((10, 10), [0, 40, 40, 0])


@pytest.mark.parametrize('name', ['coco-panoptic', 'coco'])
def test_panoptic_and_instance_segmentation(name):
    """mmdet's loader of panoptic labels needs panopticapi, so they are generated here."""
    model = small_model(f'latentmask_bixt_ti_3x_{name}')
    is_panoptic = name == 'coco-panoptic'
    shapes = [(3, 60, 50), (3, 40, 64)]
    data = demo_mm_inputs(
        BATCH, shapes, with_mask=True, with_semantic=is_panoptic, sem_seg_output_strides=1
    )
    train(model, data)
    for sample in data['data_samples']:
        sample.set_metainfo(dict(ori_shape=(30, 25)))
    predicted = model.eval()(**model.data_preprocessor(data, False), mode='predict')
    for result in predicted:
        if is_panoptic:
            assert result.pred_panoptic_seg.sem_seg.shape == (1, 30, 25)
        else:
            assert result.pred_instances.masks.shape == (100, 30, 25)
            assert result.pred_instances.labels.max() < 80

import math

import pytest
import torch
from documents import shown
from mmengine.registry import MODELS

from mmbixt.layers import sinusoids
from projects.points import PointBiXT

ARCH = dict(embed_dims=16, num_heads=2, depth=3)
VARIANTS = {
    'classes': dict(),
    'classes, groups': dict(reductions=(2,), neighbours=4),
    'classes, hierarchy': dict(reductions=(2, 2, 2), neighbours=4),
    'parts': dict(dense=True, num_categories=3),
    'parts, encoder and decoder': dict(
        axes=6, dense=True, num_categories=3, reductions=(2, 2, 2), neighbours=4
    ),
}


def build(**options):
    torch.manual_seed(1)
    backbone = dict(type='mmbixt.PointBiXT', arch=ARCH, num_latents=8, **options)
    if options.get('dense'):
        return MODELS.build(dict(type='mmbixt.PartSegmentor', backbone=backbone, num_parts=7))
    return MODELS.build(dict(type='mmbixt.PointClassifier', backbone=backbone, num_classes=7))


def inputs(axes=3, dense=False, **_):
    points = torch.rand(2, 32, axes) * 2 - 1
    if dense:
        parts = torch.randint(7, (2, 32))
        return dict(points=points, category=torch.tensor([0, 2]), parts=parts)
    return dict(points=points, label=torch.tensor([0, 6]))


@pytest.mark.parametrize('options', VARIANTS.values(), ids=VARIANTS)
def test_every_parameter_is_used(options):
    model, data = build(**options), inputs(**options)
    model(**data, mode='loss')['loss'].backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    predicted = model.eval()(**data, mode='predict')
    assert [x['scores'].shape[-1] for x in predicted] == [7, 7]
    # a shape's result does not depend on the others of its batch
    alone = model(**{key: x[1:] for key, x in data.items()}, mode='predict')
    torch.testing.assert_close(alone[0]['scores'], predicted[1]['scores'])


def test_order_of_points():
    """Naive tokens move with their points; the latents do not care."""
    order = torch.randperm(32)
    for options in (VARIANTS['classes'], VARIANTS['parts']):
        data = inputs(**options)
        points, category = data['points'], data.get('category')
        backbone = build(**options).backbone.eval()
        out = backbone(points, category)
        expected = out[:, order] if options else out
        torch.testing.assert_close(backbone(points[:, order], category), expected)


def test_tokens_have_32_sines_and_cosines_of_an_axis():
    backbone, points = PointBiXT(axes=6, arch=ARCH, periods=2), torch.rand(2, 5, 6)
    assert backbone.token_projection.in_features == 192
    expected = backbone.token_projection(sinusoids(points + 1).flatten(2))
    torch.testing.assert_close(backbone.tokenize(points), expected)
    p = 0.3
    angles = [2 * math.pi * p / 10000 ** (2 * (i // 2) / 32) for i in range(32)]
    expected = [math.cos(x) if i % 2 else math.sin(x) for i, x in enumerate(angles)]
    torch.testing.assert_close(sinusoids(torch.tensor(p)), torch.tensor(expected))


def test_more_reductions_than_layers():
    with pytest.raises(ValueError, match=r'reductions=\(2, 2\) are more than the 1 layers'):
        PointBiXT(arch=ARCH, depth=1, reductions=(2, 2))


def test_program_of_the_page():
    (code,), found = shown('points'), {}
    exec(code.replace('1024', '64'), found)
    assert found['latents'].shape == (2, 64, 192)
    assert found['tokens'].shape == (2, 64, 192)

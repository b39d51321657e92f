"""Structural dissimilarity against its definition, and which layer it compares."""

import numpy as np
import pytest
import torch
from helpers import assert_close, image
from variants import FAMILIES, build

from mmbixt.backbones import BiSASwin
from mmbixt.errors import UserError
from projects.studies.dissimilarity import dissimilarity, dissimilarity_figure, first_feature_map

WINDOWS = dict(embed_dims=24, depths=(2, 2), num_heads=(3, 6), window_size=4)


def ssim_by_hand(a, b, spread):
    """Of two windows of as many cells, with the covariance of a sample."""
    small = (0.01 * spread) ** 2, (0.03 * spread) ** 2
    means = 2 * a.mean() * b.mean() + small[0], a.mean() ** 2 + b.mean() ** 2 + small[0]
    (var_a, cov), (_, var_b) = np.cov(a.ravel(), b.ravel())
    return means[0] / means[1] * (2 * cov + small[1]) / (var_a + var_b + small[1])


def test_dissimilarity_by_its_definition():
    first, second = torch.randn(2, 3, 9, 12)
    maps = dissimilarity(first, second)
    a, b = first[1].numpy(), second[1].numpy()
    spread = max(a.max(), b.max()) - min(a.min(), b.min())
    expected = (1 - ssim_by_hand(a[1:8, 3:10], b[1:8, 3:10], spread)) / 2
    assert maps[1, 4, 6].item() == pytest.approx(expected, abs=1e-6)
    assert_close(dissimilarity(first, first), torch.zeros(3, 9, 12).double())
    assert_close(dissimilarity(0 * first, 0 * first), torch.zeros(3, 9, 12).double())


@pytest.mark.parametrize('family', FAMILIES)
def test_the_first_attention(family):
    """Its output for the tokens is a map of their grid."""
    feature_map, layer, stride = first_feature_map(build(FAMILIES[family]), image(1, 64, 96))
    assert layer in ('0', '0.0')
    assert feature_map.shape == (16, 64 // stride, 96 // stride)


def test_picture_of_two_models():
    models = [BiSASwin(WINDOWS, bisa_stages=stages) for stages in ((), (0,))]
    inputs, shown = image(1, 64, 96), np.zeros((64, 96, 3), np.uint8)
    figure = dissimilarity_figure(models, [inputs] * 2, shown, 'Swin and BiSA-Swin')
    assert 'layer 0.0' in figure.get_supxlabel()
    assert [ax.get_title().partition(':')[0] for ax in figure.axes[:2]] == ['image', 'all channels']
    models[1] = BiSASwin(WINDOWS | dict(embed_dims=48))
    with pytest.raises(UserError, match='24 x 16 x 24 and 48 x 16 x 24'):
        dissimilarity_figure(models, [inputs] * 2, shown, '')

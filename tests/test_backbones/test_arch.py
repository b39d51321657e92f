"""The arguments of all backbones, and errors that list valid values."""

import pytest
import torch

from mmbixt import backbones
from mmbixt.backbones import BiFormer, BiSASwin, BiXT
from mmbixt.backbones.arch import resolve_out_indices
from mmbixt.layers import DropPath

CLASSES = [getattr(backbones, name) for name in backbones.__all__]


@pytest.mark.parametrize(
    ('given', 'depth', 'expected'),
    [
        *((None, 12, (3, 5, 7, 11)), (None, 24, (7, 11, 15, 23)), (None, 11, (3, 5, 7, 10))),
        *((None, 1, (0,)), ((-1,), 12, (11,)), (5, 12, (5,)), ([2, 5], 6, (2, 5))),
    ],
)
def test_out_indices(given, depth, expected):
    assert resolve_out_indices(given, depth) == expected


@pytest.mark.parametrize('wrong', [(), (5, 3), (3, 3)])
def test_wrong_out_indices(wrong):
    with pytest.raises(ValueError, match='out_indices='):
        resolve_out_indices(wrong, 12)


@pytest.mark.parametrize('cls', CLASSES)
@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (dict(arch='huge'), "{}: arch='huge' is not one of '.*'"),
        (dict(arch=dict(heigth=2)), r"{}: an arch dict .* missing: \['.* unknown: \['heigth'\]"),
        (dict(frozen_stages=99, out_indices=(0,)), 'frozen_stages=99: {} has stages 0 to'),
    ],
)
def test_wrong_arguments_of_all_backbones(cls, options, message):
    with pytest.raises(ValueError, match=message.format(cls.__name__)):
        cls(**options)


HEADS = dict(embed_dims=30, num_heads=4, depth=2)
SWIN = dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2))


@pytest.mark.parametrize(
    ('cls', 'options', 'message'),
    [
        (BiXT, dict(arch=HEADS), '30 channels.*4 heads'),
        (BiXT, dict(patch_stride=32), 'patch_stride=32 is not one of 16, 8, 4'),
        (BiXT, dict(token_refiner='conv'), "token_refiner='conv' is not one of None, 'lpi'"),
        (
            BiFormer,
            dict(topks=(1, 4, 16)),
            r'topks=\(1, 4, 16\).* must have one number for each stage',
        ),
        (BiFormer, dict(topks=(1, 4, 70, -2)), r'topks=.*70.* a stage has 8 x 8 regions'),
        (BiFormer, dict(num_regions=(8, 8)), r'num_regions=\(8, 8\) must have one number for each'),
        (BiSASwin, dict(arch={**SWIN, 'num_heads': (1,)}), 'depths=.*num_heads=.*for each stage'),
        (BiSASwin, dict(lam=2), "lam=2 must be a number from 0 to 1, or 'learned'"),
    ],
)
def test_wrong_arguments_of_one_backbone(cls, options, message):
    with pytest.raises(ValueError, match=message):
        cls(**options)


@pytest.mark.parametrize(('cls', 'rate'), [(BiXT, 0.12), (BiFormer, 0.21), (BiSASwin, 0.11)])
def test_stochastic_depth_grows_over_all_layers_also_those_not_built(cls, rate):
    backbone = cls(drop_path_rate=rate, out_indices=(0, 1))
    parts = (m for m in backbone.modules() if isinstance(m, DropPath))
    rates = torch.tensor(list(dict.fromkeys(part.drop_prob for part in parts)))
    step = 0.01 if cls is not BiFormer else 0.21 / 29
    assert len(rates) == {BiXT: 2, BiFormer: 8, BiSASwin: 4}[cls]
    torch.testing.assert_close(rates, step * torch.arange(len(rates)))

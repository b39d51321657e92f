"""The arguments of all backbones."""

import pytest
import torch

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.backbones.arch import resolve_out_indices
from mmbixt.layers import DropPath


@pytest.mark.parametrize(
    ('given', 'depth', 'expected'),
    [
        *((None, 12, (3, 5, 7, 11)), (None, 24, (7, 11, 15, 23)), (None, 11, (3, 5, 7, 10))),
        *((None, 1, (0,)), ((-1,), 12, (11,)), (5, 12, (5,)), ([2, 5], 6, (2, 5))),
    ],
)
def test_out_indices(given, depth, expected):
    assert resolve_out_indices(given, depth) == expected


def test_unknown_keys_of_an_arch():
    with pytest.raises(ValueError, match=r"XCiT: an arch dict .* unknown: \['heigth'\]"):
        XCiT(arch=dict(heigth=2))


@pytest.mark.parametrize(('cls', 'rate'), [(BiXT, 0.12), (BiFormer, 0.21), (BiSASwin, 0.11)])
def test_stochastic_depth_grows_over_all_layers_also_those_not_built(cls, rate):
    backbone = cls(drop_path_rate=rate, out_indices=(0, 1))
    parts = (m for m in backbone.modules() if isinstance(m, DropPath))
    rates = torch.tensor(list(dict.fromkeys(part.drop_prob for part in parts)))
    step = 0.01 if cls is not BiFormer else 0.21 / 29
    assert len(rates) == {BiXT: 2, BiFormer: 8, BiSASwin: 4}[cls]
    torch.testing.assert_close(rates, step * torch.arange(len(rates)))

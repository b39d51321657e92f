"""BiFormer in the channels-first code. The zoo compares the parameters of all rows."""

import re

import pytest
import torch
from helpers import assert_close, image
from test_checkpoints.layouts import meta_state, random_state

from mmbixt.attention import by_definition
from mmbixt.backbones import BiFormer
from mmbixt.checkpoints.errors import CheckpointMismatchError
from projects.ablations import BiFormerAblation
from projects.ablations.biformer import SmallerRegions


def test_same_weights_in_both_codes_of_biformer_give_the_same_outputs():
    """If no region is padded. The last stage differs: its LePE covers padding in one code only."""
    rows, columns = random_state('biformer_stl'), {}
    rows = {key: value.abs() * 0.02 for key, value in rows.items()}  # variances must be positive
    linear = r'(qkv_linear|output_linear|mlp\.[02]|attn\.qkv|attn\.proj)\.weight$'
    for key, value in rows.items():
        name = key.replace('.qkv.qkv.', '.qkv_linear.').replace('.wo.', '.output_linear.')
        columns[name] = value[:, :, None, None] if re.search(linear, name) else value
    outputs = []
    for is_columns, state in enumerate((rows, columns)):
        options = dict(topks=(1, 2, 4, -2), out_indices=(0, 1, 2), channels_first=bool(is_columns))
        backbone = BiFormerAblation('stl', 2, **options).eval()
        backbone.load_state_dict(state, strict=False)  # norms of outputs are new
        with torch.no_grad():
            outputs.append(backbone(image(1, 64, 32)))
    for actual, expected in zip(*outputs, strict=True):
        assert torch.equal(actual, expected)
    for other in (BiFormer('stl'), BiFormerAblation('stl', channels_first=True)):
        with pytest.raises(CheckpointMismatchError):  # the file of the other code
            other.load_state_dict(rows if hasattr(other, 'channels_first') else columns)


def test_files_of_the_channels_first_code():
    with torch.device('meta'):
        backbone = BiFormerAblation('stl', output_norms=False, channels_first=True)
    missing, unexpected = backbone.load_state_dict(meta_state('biformer_stl_nchw'), strict=False)
    assert not missing + unexpected


@pytest.mark.parametrize('padding', ['legacy', 'masked'])
@torch.no_grad()
def test_channels_first_equals_its_definition(padding):
    arch = dict(embed_dims=(16, 32, 32), depths=(1, 1, 1), topks=(1, 4, -1), code='stl')
    backbone = BiFormerAblation(arch, 2, padding=padding, channels_first=True).double().eval()
    x = image(2, 84, 100).double()
    expected = backbone(x)
    with by_definition():
        assert_close(backbone(x), expected, 1e-11)


def test_zero_keys_take_part():
    """Padding is added after the projection: its scores are zero, not minus infinity."""
    attention = SmallerRegions(4, 1, 4, 2, 'legacy').double()
    with torch.no_grad():
        attention.qkv.qkv.weight.zero_()
        attention.qkv.qkv.bias.copy_(torch.tensor([0.0] * 8 + [1.0] * 4))  # v = 1, q = k = 0
        attention.lepe.weight.zero_()
        attention.lepe.bias.zero_()
        attention.wo.weight.copy_(torch.eye(4))
        attention.wo.bias.zero_()
        # 5 x 4 cells are cut into regions of 2 x 2: three rows; half of the last one is padding
        out = attention(torch.randn(1, 5, 4, 4, dtype=torch.float64))
    assert attention.regions(5, 4) == (3, 2, 2, 2)
    # each query attends to 4 of 6 equal regions: 16 keys, 2 or 4 of them padding with values of 0
    assert set(out.mul(16).round().int().flatten().tolist()) <= {12, 14, 16}
    assert out.min() < 0.95

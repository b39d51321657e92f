"""Files of the BiFormer authors, whose names depend on the code that wrote them."""

import torch
from helpers import image, official_state

from mmbixt.backbones import BiFormer


def test_same_weights_in_both_codes_give_the_same_outputs():
    """Where no region is padded, but for what LePE sees in the last stage."""
    rows = official_state('biformer_stl')
    columns = {
        key.replace('.qkv.qkv.', '.qkv_linear.').replace('.wo.', '.output_linear.'): value
        for key, value in rows.items()
    }
    linear = ('qkv_linear.weight', 'output_linear.weight', 'mlp.0.weight', 'mlp.2.weight')
    linear = (*linear, 'attn.qkv.weight', 'attn.proj.weight')
    for key in columns:
        if key.endswith(linear):
            columns[key] = columns[key][:, :, None, None]
    maps = []
    for arch, state in (('stl', rows), ('stl-nchw', columns)):
        backbone = BiFormer(arch, 2, topks=(1, 2, 4, -2), out_indices=(0, 1, 2)).eval()
        backbone.load_state_dict(state)
        with torch.no_grad():
            maps.append(backbone(image(1, 64, 32)))
    for actual, expected in zip(*maps, strict=True):
        assert torch.equal(actual, expected)

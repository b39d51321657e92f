"""XCiT from the authors' files and from timm's."""

import timm
import torch
from helpers import assert_close, image
from test_checkpoints.layouts import build_meta, meta_state

from mmbixt.backbones import XCiT


def test_timm_itself_agrees():
    """Their model and ours, the same weights: the tokens of the last layer."""
    theirs = timm.create_model('xcit_nano_12_p16_224', num_classes=10).eval()
    ours = XCiT('nano12').eval()
    ours.load_state_dict(theirs.state_dict())
    seen = []
    theirs.blocks[11].register_forward_hook(lambda *args: seen.append(args[2]))
    x = image(1, 96, 64)
    with torch.no_grad():
        theirs(x)
        tokens = ours(x)[-1].flatten(2).transpose(1, 2)
    assert_close(tokens, seen[0], 1e-5)


def test_layers_that_no_output_needs_are_dropped():
    backbone = build_meta(XCiT, arch='tiny12', out_indices=(3, 5))
    backbone.load_state_dict(meta_state('xcit_tiny_12_p16'))

"""XCiT from the authors' files and from timm's."""

import timm
import torch
from helpers import assert_close, image, official_state

from mmbixt.backbones import XCiT


def test_same_weights_from_the_authors_and_from_timm_give_the_same_outputs():
    state = official_state('xcit_nano_12_p8')
    timms = {key.replace('pos_embeder.', 'pos_embed.'): value for key, value in state.items()}
    for layer in range(2):  # of class attention, which timm splits
        for kind in ('weight', 'bias'):
            whole = timms.pop(f'cls_attn_blocks.{layer}.attn.qkv.{kind}')
            for name, part in zip('qkv', whole.chunk(3), strict=True):
                timms[f'cls_attn_blocks.{layer}.attn.{name}.{kind}'] = part
    maps = []
    for weights in (state, timms):
        backbone = XCiT('nano12', 8).eval()
        backbone.load_state_dict(weights)
        with torch.no_grad():
            maps.append(backbone(image(1, 40, 32))[-1])
    assert torch.equal(*maps)


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
    state = official_state('xcit_tiny_12_p16')
    XCiT('tiny12', out_indices=(3, 5)).load_state_dict(state)

"""Recognise the model of a set of weights by their names, for error messages."""

import re
from collections.abc import Mapping

from torch import Tensor

# (pattern of names that only this family has, the family); the first match counts
PATTERNS = (
    (r'cross_attention_latents_token', 'BiXT'),
    (r'cls_attn_blocks|pos_embeder\.|blocks\.\d+\.local_mp\.', 'XCiT'),
    (r'attn\.lepe\.|extra_norms\.', 'BiFormer'),
    (r'\.w_msa\.isa\.', 'BiSA-Swin'),
    (r'relative_position_bias_table', 'Swin Transformer'),
    (r'layers?\.?\d+\.\d+\.conv\d\.', 'ResNet'),
    (r'stages\.\d+\.(blocks\.)?\d+\.(depthwise_conv|dwconv)', 'ConvNeXt'),
    (r'(blocks|layers)\.\d+\.attn\.', 'ViT or DeiT'),
)
_PARTS = ('backbone', 'neck', 'decode_head', 'auxiliary_head', 'rpn_head', 'roi_head', 'bbox_head')


def describe(state: Mapping[str, Tensor]) -> str:
    """For example 'BiXT' or 'a whole mm model (backbone, decode_head)'."""
    if not state:
        return 'without weights'
    parts = [part for part in _PARTS if any(key.startswith(f'{part}.') for key in state)]
    if parts:
        return f'a whole mm model ({", ".join(parts)})'
    names = '\n'.join(state)
    unknown = f'something unknown, with weights like {", ".join(list(state)[:3])}'
    return next((name for key, name in PATTERNS if re.search(key, names)), unknown)

"""XCiT: from the authors' layouts and timm's to ours. Names are the authors'."""

import re
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from mmbixt.checkpoints.state_dict import Conversion, last_number, translate

_CLASSIFIER = re.compile(r'^(cls_token$|cls_attn_blocks\.|norm\.|head\.)')
# part of the backbone in the authors' dense code, of FeaturePyramidAdapter here
PYRAMID = re.compile(r'^fpn\d\.')
_LAYER = re.compile(r'^blocks\.(\d+)\.')
IN_CLASSIFIER = (r'^(cls_token$|cls_attn_blocks\.|norm\.)', r'neck.\1')  # see split_classifier
OPTIONAL = r'num_batches_tracked$'


def convert_xcit(state: Mapping[str, Tensor], expected: Collection[str], depth: int) -> Conversion:
    """The weights of a dense XCiT from the state dict of a classifier or of a dense model.

    Dropped are the classifier (class token, class attention, final norm, head), the pyramid
    operations, and layers below ``depth`` that no output of the model needs.
    """

    def rename(key: str) -> str | None:
        name = re.sub(r'^pos_embed\.', 'pos_embeder.', key)  # timm's to the authors'
        if name in expected:
            return name
        layer = _LAYER.match(name)
        needless = layer is not None and f'blocks.{layer[1]}.norm1.weight' not in expected
        is_left_out = _CLASSIFIER.match(name) or PYRAMID.match(name)
        return None if is_left_out or (needless and int(layer[1]) < depth) else name

    return translate(state, rename)


def fuse_class_attention(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Concatenate timm's linear layers q, k and v of class attention to the authors' qkv."""
    fused = dict(state)
    for key in state:
        first = re.fullmatch(r'(cls_attn_blocks\.\d+\.attn\.)q(\.weight|\.bias)', key)
        parts = [f'{first[1]}{part}{first[2]}' for part in 'qkv'] if first else []
        if parts and all(part in state for part in parts):
            fused[f'{first[1]}qkv{first[2]}'] = torch.cat([fused.pop(part) for part in parts])
    return fused


def advise_xcit(state: Mapping[str, Tensor], depth: int, patch_size: int) -> str | None:
    """Advice for a file of another depth or patch size."""
    layers = 1 + last_number(_LAYER, state)
    halvings = len([key for key in state if re.fullmatch(r'patch_embed\.proj\.\d\.0\.weight', key)])
    if not (layers and halvings) or (layers, 2**halvings) == (depth, patch_size):
        return None
    return (
        f'The file has depth={layers} and patch_size={2**halvings}, the model {depth} and '
        f'{patch_size}: build the model with the values of the file.'
    )


def convert_whole_xcit(state: Mapping[str, Tensor]) -> Conversion | None:
    """Convert a whole model of the authors' dense code (mmcv 1.x); None for other models.

    The pyramid operations move from the authors' backbone to the first part of the neck,
    ``neck=[FeaturePyramidAdapter, FPN]``. Heads are the stock ones in both.
    """
    pyramid = re.compile(r'^backbone\.(?=fpn\d\.)')
    is_theirs = any(key.startswith('backbone.pos_embeder.') for key in state)
    if not is_theirs or not any(pyramid.match(key) for key in state):
        return None
    neck = re.compile(r'^neck\.')
    return translate(state, lambda key: pyramid.sub('neck.0.', neck.sub('neck.1.', key)))

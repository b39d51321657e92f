"""Which published model a file belongs to, for error messages."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import nn

from mmbixt.checkpoints.sources import PUBLISHED, Published
from mmbixt.checkpoints.state_dict import State, compare


def identify(state: State, classes: Mapping[str, type[nn.Module]]) -> str:
    """What a file is, as the end of a sentence that begins with 'the file'.

    Several published models may have weights of the same shapes, as with BiXT's strides. A deeper
    file also fits a shallower model, and a plain Swin fits a BiSA-Swin: the models with the fewest
    differences are named. ``classes`` are the backbones by their names.
    """
    names = '\n'.join(state)
    matching = (name for name, kind in classes.items() if re.search(kind.weight_names, names))
    family = next(matching, None)
    unused = {}
    for model in PUBLISHED:
        if model.family == family:
            built = _build(model, classes[family])
            weights = built.convert(state)
            problems, new = compare(weights, built.state_dict(), built.may_be_missing)
            if not problems:
                unused[model] = len(state) - len(weights) + len(new)
    fits = [model for model, count in unused.items() if count == min(unused.values())]
    if fits:
        return f'is {" or ".join(map(_describe, fits))}'
    return f'seems to be of {f"a {family}" if family else "another network"}'


@cache
def _build(model: Published, backbone: type[nn.Module]) -> nn.Module:
    """The backbone of a published model, without memory."""
    return without_memory(backbone, model.options)


def without_memory(backbone: type[nn.Module], options: Mapping[str, Any]) -> nn.Module:
    """A backbone whose weights have shapes, but no values."""
    with torch.device('meta'):
        return backbone(**options)


def _describe(model: Published) -> str:
    """For example "xcit_tiny_12_p8 (mmbixt.XCiT, arch='tiny12', patch_size=8)"."""
    return f'{model.name} ({model.backbone["type"]}, {model.options_text})'

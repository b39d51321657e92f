"""The published models that have the weights of a file, for error messages."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mmbixt.backbones.published import PUBLISHED, Published
from mmbixt.checkpoints.describe import PATTERNS, describe
from mmbixt.checkpoints.state_dict import Comparison, compare

State = Mapping[str, Tensor]
# descriptions of weights, and the backbones that have them if the names differ
_FAMILIES = {'Swin Transformer': 'BiSASwin', 'BiSA-Swin': 'BiSASwin'}


def identify(state: State, classes: Mapping[str, type[nn.Module]]) -> str:
    """What a file is, as the end of a sentence that begins with 'the file'.

    Several published models may have weights of the same shapes, as with BiXT's strides. A deeper
    file also fits a shallower model, and a plain Swin fits a BiSA-Swin: the models with the fewest
    differences are named.

    Args:
        state: the weights by their names in the file.
        classes: the backbones by their names.
    """
    kind = describe(state)
    family = _FAMILIES.get(kind, kind)
    # other families have no pattern of names, so their weights are compared
    described = {_FAMILIES.get(name, name) for _, name in PATTERNS} - {family}
    unused = {}
    for model in PUBLISHED:
        if model.family in classes and model.family not in described:
            weights, (problems, new) = fit(state, model, classes[model.family])
            if not problems:
                unused[model] = len(state) - len(weights) + len(new)
    fits = [model for model, count in unused.items() if count == min(unused.values())]
    return f'is {" or ".join(map(_describe, fits))}' if fits else f'seems to be {kind}'


def fit(
    state: State, model: Published, backbone: type[nn.Module]
) -> tuple[dict[str, Tensor], Comparison]:
    """The weights of a file by the names of a published model, and how they differ from it."""
    with torch.device('meta'):
        built = backbone(**model.options)
    weights = built.convert(state)
    return weights, compare(weights, built.state_dict(), built.may_be_missing)


def _describe(model: Published) -> str:
    """For example "xcit_tiny_12_p8 (mmbixt.XCiT, arch='tiny12', patch_size=8)"."""
    options = [f'{key}={value!r}' for key, value in model.options.items()]
    return f'{model.name} ({", ".join([model.backbone["type"], *options])})'

"""The published models that have the weights of a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from mmbixt.backbones import published
from mmbixt.backbones.published import Published
from mmbixt.checkpoints.describe import describe
from mmbixt.checkpoints.state_dict import Conversion, Differences, compare

State = Mapping[str, Tensor]
# by the description of their weights
_FAMILIES = {'Swin Transformer': 'BiSASwin', 'BiSA-Swin': 'BiSASwin'}


@dataclass
class Fit:
    """A published model, and how the weights of a file fit it."""

    model: Published
    converted: Conversion
    differences: Differences

    @property
    def unused(self) -> int:
        """Weights of either that the other does not have."""
        return len(self.converted.dropped) + len(self.differences.optional)


def recognise(state: State) -> list[Fit]:
    """The published models with the weights of a backbone or classifier; several if their
    weights have the same shapes, as with BiXT's strides; none for other models.

    A deeper file also fits a shallower model, and a plain Swin fits a BiSA-Swin: the models with
    the fewest differences are taken.
    """
    fits = [one for one in _fits_of_family(state) if not one.differences]
    least = min((one.unused for one in fits), default=0)
    return [one for one in fits if one.unused == least]


def nearest(state: State) -> Fit | None:
    """The published model that has most of the weights of a damaged or changed file."""
    fits = _fits_of_family(state)
    near = min(fits, key=lambda one: len(one.differences) + one.unused, default=None)
    return near if near and len(near.differences) < near.differences.number / 10 else None


def _fits_of_family(state: State) -> list[Fit]:
    kind = describe(state)
    family = _FAMILIES.get(kind, kind)
    return [fit(state, model) for model in published.PUBLISHED if model.family == family]


def fit(state: State, model: Published) -> Fit:
    """How the weights of a file fit a published model."""
    backbone = build(model.name)
    expected = backbone.state_dict()
    converted = backbone.convert_checkpoint(state, expected)
    differences = compare(converted, expected, backbone.optional_weights)
    return Fit(model, converted, differences)


def identify(state: State) -> str:
    """What a file is, as the end of a sentence that begins with 'the file'."""
    if fits := recognise(state):
        return f'is {list_models(fits)}'
    near = nearest(state)
    return f'is nearly {list_models([near])}' if near else f'seems to be {describe(state)}'


def list_models(fits: list[Fit]) -> str:
    """For example "xcit_tiny_12_p8 (mmbixt.XCiT, arch='tiny12', patch_size=8)"."""
    return ' or '.join(f'{x.model.name} ({_describe(x.model.backbone)})' for x in fits)


def _describe(config: dict) -> str:
    options = (f'{key}={value!r}' for key, value in config.items() if key != 'type')
    return ', '.join([config['type'], *options])


@cache
def build(name: str) -> nn.Module:
    config = next(x.backbone for x in published.PUBLISHED if x.name == name)
    with torch.device('meta'):
        return MODELS.build(config)

"""Pictures of the attention of the four families for an image, one picture for a layer.

Networks run fused attention, without attention matrices. So a forward pass records the inputs of
the layers, from which their ``attention_maps`` compute the matrices.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt import backbones
from mmbixt.attention import (
    BidirectionalAttention,
    CrossCovarianceAttention,
    LatentAttention,
    RoutingAttention,
)
from mmbixt.backbones.base import DenseBackbone
from mmbixt.backbones.bisa_swin import ShiftedWindows
from mmbixt.classification import ClassAttentionNeck
from mmbixt.errors import UserError
from mmbixt.visualization.attention import biformer, bisa_swin, bixt, class_attention, xcit
from mmbixt.visualization.attention.drawing import View
from mmbixt.visualization.attention.layer import Layer

__all__ = ['attention_figures']

# What draws an attention: a module with
#   draw(Layer, View) -> Figure
#   default_layer({name: attention}, out_indices) -> name, if it is not the last one
DRAWN_BY: dict[type[nn.Module], ModuleType] = {
    BidirectionalAttention: bixt,
    LatentAttention: bixt,
    CrossCovarianceAttention: xcit,
    RoutingAttention: biformer,
    ShiftedWindows: bisa_swin,
}


class Drawable(NamedTuple):
    """An attention in a model, what draws it, and its stride."""

    drawer: ModuleType
    attention: nn.Module
    stride: int


@torch.no_grad()
def attention_figures(
    model: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    layers: Sequence[str] | None = None,
    heads: Sequence[int] | None = None,
    point: tuple[float, float] | None = None,
    content: tuple[int, int] | None = None,
    all_latents: bool = False,
) -> dict[str, Figure]:
    """Pictures of the attention of a model, a picture for each layer.

    Args:
        model: a model with a backbone of mmbixt, or such a backbone.
        inputs: the preprocessed image, (1,3,H,W).
        image: the image to draw on, (h,w,3) in uint8, RGB, of any size.
        layers: names of layers, counted from 0: '7', or '2.5' for block 5 of stage 2 in backbones
            with stages, or '2' for all layers of that stage; 'class.1' or 'class' in the neck of
            XCiT's classifiers; 'all'. Default: one layer of the backbone.
        heads: heads, counted from 0; of several the mean is drawn, for XCiT each. Default: the mean
            of all, for XCiT the four with the highest attention, or all of class attention.
        point: (x, y) in pixels of ``image``, for the attention of one point (BiFormer, BiSA-Swin);
            default: the centre.
        content: (rows, columns) of the inputs that the image fills, from the top left; the rest is
            padding. Default: all.
        all_latents: draw all latents of BiXT instead of the four with the most tokens.
    """
    existing = attention_layers(model)
    chosen = _choose([*existing], layers or [_default_layer(model)])
    view, figures = make_view(image, point, content or inputs.shape[2:]), {}
    for layer in record_layers(model, inputs, chosen):
        drawn = layer._replace(heads=heads, all_latents=all_latents)
        figures[f'layer_{layer.name:0>2}'] = existing[layer.name].drawer.draw(drawn, view)
    return figures


def attention_layers(model: nn.Module) -> dict[str, Drawable]:
    """The attentions with pictures, by the name of their layer; the last one if layers share it."""
    backbone, neck = _parts(model)
    names = {layer.attention: layer for layer in backbone.layer_list()}
    layers = {
        '.'.join(map(str, layer.numbers)): Drawable(drawer, attention, layer.stride)
        for attention, layer in names.items()
        for kind, drawer in DRAWN_BY.items()
        if isinstance(attention, kind)
    }
    if not layers:
        raise UserError(f'There are no pictures for a {type(backbone).__name__}.')
    for i, block in enumerate(neck.cls_attn_blocks if neck else ()):
        layers[f'class.{i}'] = Drawable(class_attention, block.attn, backbone.out_strides[-1])
    return layers


def _default_layer(model: nn.Module) -> str:
    layers = {k: x for k, x in attention_layers(model).items() if x.drawer is not class_attention}
    *_, (last, (drawer, _, _)) = layers.items()
    if not hasattr(drawer, 'default_layer'):
        return last
    attentions = {name: x.attention for name, x in layers.items()}
    return drawer.default_layer(attentions, _parts(model)[0].out_indices)


def record_layers(model: nn.Module, inputs: Tensor, names: Sequence[str]) -> list[Layer]:
    """Layers with what they get in a forward pass of images (1,3,H,W)."""
    existing, (backbone, neck) = attention_layers(model), _parts(model)

    def read(name: str, module: nn.Module, arguments: tuple) -> Layer:
        stride = existing[name].stride
        grid = tuple(-(-side // stride) for side in inputs.shape[2:])
        return Layer(name, module, arguments, stride, grid)

    modules = {name: existing[name].attention for name in names}
    # the neck runs after the backbone
    handle = backbone.register_forward_hook(lambda _, __, maps: neck(maps) if neck else None)
    try:
        return list(backbone.record(inputs, modules, read).values())
    finally:
        handle.remove()


def _parts(model: nn.Module) -> tuple[DenseBackbone, ClassAttentionNeck | None]:
    """The backbone, and the neck if it is class attention."""
    backbone, neck = getattr(model, 'backbone', model), getattr(model, 'neck', None)
    if not isinstance(backbone, DenseBackbone):
        names = ', '.join(backbones.__all__)
        raise UserError(f'There are pictures for {names}, not for a {type(backbone).__name__}.')
    return backbone, neck if isinstance(neck, ClassAttentionNeck) else None


def _choose(existing: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Full names of the wanted layers; a stage ('2') stands for all of its layers."""
    names = {name: {name, name.split('.')[0], 'all'} for name in existing}
    if unknown := {*wanted}.difference(*names.values()):
        raise UserError(f'There is no layer {min(unknown)}. This model has {", ".join(names)}.')
    return [layer for layer, aliases in names.items() if aliases & {*wanted}]


def make_view(image: np.ndarray, point: tuple[float, float] | None, content: Sequence[int]) -> View:
    (rows, columns), (height, width) = image.shape[:2], content
    x, y = point or (columns / 2, rows / 2)
    if not (0 <= x < columns and 0 <= y < rows):
        raise UserError('The point is outside the image.')
    return View(image, height, width, (x * width / columns, y * height / rows))

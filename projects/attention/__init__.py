"""Pictures of the attention of the four families for an image, one picture for a layer.

Networks run fused attention, without attention matrices. So a forward pass keeps the inputs of the
layers, from which ``matrices`` of each family's file computes them.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt import attention
from mmbixt.backbones.base import DenseBackbone
from mmbixt.backbones.bisa_swin import ShiftedWindows
from mmbixt.classification import ClassAttentionNeck
from mmbixt.errors import UserError
from mmbixt.layers.softmax_attention import ClassAttention
from projects.attention import biformer, bisa_swin, bixt, xcit
from projects.attention.drawing import Layer, View

DRAWN_BY: dict[type[nn.Module], Callable[[Layer, View], Figure]] = {
    attention.BidirectionalAttention: bixt.draw,
    attention.LatentAttention: bixt.draw,
    attention.CrossCovarianceAttention: xcit.draw,
    ClassAttention: xcit.draw_class,
    attention.RoutingAttention: biformer.draw,
    ShiftedWindows: bisa_swin.draw,
}


@torch.no_grad()
def attention_figures(
    model: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    layers: Sequence[str] | None = None,
    point: tuple[float, float] | None = None,
    content: tuple[int, int] | None = None,
    **options: Any,
) -> dict[str, Figure]:
    """Pictures of a model with a backbone of mmbixt, which is put into eval mode, by their layers.

    ``inputs`` is the preprocessed image (1,3,H,W), of which ``image`` (h,w,3), in uint8, RGB, fills
    ``content`` (rows, columns; default: all). README.md explains the others.
    """
    names, wanted = [*attention_layers(model)], layers or [default_layer(model)]
    known = {name: {name, name.split('.')[0], 'all'} for name in names}
    if unknown := {*wanted}.difference(*known.values()):
        raise UserError(f'There is no layer {min(unknown)}. This model has {", ".join(names)}.')
    chosen = [name for name, aliases in known.items() if aliases & {*wanted}]
    (rows, columns), (height, width) = image.shape[:2], content or inputs.shape[2:]
    x, y = point or (columns / 2, rows / 2)
    if not (0 <= x < columns and 0 <= y < rows):
        raise UserError('The point is outside the image.')
    view = View(image, height, width, (x * width / columns, y * height / rows), **options)
    return {
        f'layer_{layer.name:0>2}': DRAWN_BY[type(layer.module)](layer, view)
        for layer in record_layers(model, inputs, chosen)
    }


def attention_layers(model: nn.Module) -> dict[str, tuple[nn.Module, int]]:
    """The attentions with pictures and their strides, by the name of their layer."""
    backbone, neck = getattr(model, 'backbone', model), getattr(model, 'neck', None)
    names = {}  # if layers share an attention, that of the last one
    for layer in backbone.layer_list() if isinstance(backbone, DenseBackbone) else ():
        for module in layer.module.modules():
            if type(module) in DRAWN_BY:
                names[module] = '.'.join(re.findall(r'\d+', layer.name)), layer.stride
    if not names:
        raise UserError(f'There are no pictures for a {type(backbone).__name__}.')
    if isinstance(neck, ClassAttentionNeck):
        for i, block in enumerate(neck.cls_attn_blocks):
            names[block.attn] = f'class.{i}', backbone.out_strides[-1]
    return {name: (module, stride) for module, (name, stride) in names.items()}


def default_layer(model: nn.Module) -> str:
    """The last one; in BiSA-Swin with inverse attention; in BiXT that of the second feature map,
    because in deep layers the latents are often alike."""
    layers = {name: x for name, (x, _) in attention_layers(model).items() if 'class' not in name}
    second = str(getattr(model, 'backbone', model).out_indices[:2][-1])
    if isinstance(layers.get(second), attention.BidirectionalAttention):
        return second
    inverse = [k for k, x in layers.items() if bisa_swin.has_inverse_attention(x)]
    return [*layers, *inverse][-1]


@torch.no_grad()
def record_layers(model: nn.Module, inputs: Tensor, names: Sequence[str]) -> list[Layer]:
    """Layers with what they get in a forward pass of images (B,3,H,W), in eval mode."""
    layers, found = attention_layers(model.eval()), {}

    def keep(layer: Layer, _: nn.Module, inputs: tuple) -> None:
        found[layer.name] = layer._replace(inputs=inputs)

    with ExitStack() as hooks:
        for name in names:
            (module, stride), sides = layers[name], inputs.shape[2:]
            layer = Layer(name, module, (), stride, [-(-side // stride) for side in sides])
            hooks.enter_context(module.register_forward_pre_hook(partial(keep, layer)))
        outputs = getattr(model, 'backbone', model)(inputs)
        if 'class.0' in layers:
            model.neck(outputs)
    return list(found.values())

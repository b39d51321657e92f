"""Pictures of the attention of the four families for an image, one picture for a layer.

The attention is computed again by the layers from their inputs, which one forward pass records: the
formulations that run in the network do not compute attention matrices.
"""

from collections.abc import Sequence
from types import ModuleType

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.visualization.attention import biformer, bisa_swin, bixt, xcit
from mmbixt.visualization.attention.drawing import Scene
from mmbixt.visualization.attention.layer import AttentionPictureError, Layer

__all__ = ['FAMILIES', 'AttentionPictureError', 'attention_figures']

# A module for each family has
#   attention_layers(backbone) -> {name: (module, stride)}, in the order of the network
#   default_layer(backbone) -> name
#   draw(Layer, Scene) -> Figure
FAMILIES: dict[type[nn.Module], ModuleType] = {
    BiXT: bixt,
    XCiT: xcit,
    BiFormer: biformer,
    BiSASwin: bisa_swin,
}


@torch.no_grad()
def attention_figures(
    model: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    layers: Sequence[str] | None = None,
    heads: Sequence[int] | None = None,
    point: tuple[float, float] | None = None,
    content: tuple[int, int] | None = None,
) -> dict[str, Figure]:
    """Pictures of the attention of a model, a picture for each layer.

    Args:
        model: a model with a backbone of mmbixt, or such a backbone.
        inputs: the preprocessed image, (1,3,H,W).
        image: the image to draw on, (h,w,3) in uint8, RGB, of any size.
        layers: names of layers, counted from 0: '7', or '2.5' for block 5 of stage 2 in backbones
            with stages, or '2' for all layers of that stage; 'all'. Default: one layer.
        heads: heads, counted from 0; of several the mean is drawn, for XCiT each. Default: the mean
            of all, for XCiT the four with the highest attention.
        point: (x, y) in pixels of ``image``, for the attention of one point (BiFormer, BiSA-Swin);
            default: the centre.
        content: (rows, columns) of the inputs that the image fills, from the top left; the rest is
            padding. Default: all.
    """
    backbone = getattr(model, 'backbone', model)
    family = family_of(backbone)
    chosen = _choose(backbone, layers or [family.default_layer(backbone)])
    scene = _make_scene(image, point, content or inputs.shape[2:])
    recorded = record_layers(backbone, inputs, chosen, heads)
    return {f'layer_{layer.name:0>2}': family.draw(layer, scene) for layer in recorded}


def record_layers(
    backbone: nn.Module, inputs: Tensor, names: Sequence[str], heads: Sequence[int] | None = None
) -> list[Layer]:
    """Layers with what they get in a forward pass of images (1,3,H,W)."""
    existing = family_of(backbone).attention_layers(backbone)

    def read(name: str, module: nn.Module, arguments: tuple) -> Layer:
        stride = existing[name][1]
        grid = tuple(-(-side // stride) for side in inputs.shape[2:])
        return Layer(name, module, arguments, stride, grid, heads)

    modules = {name: existing[name][0] for name in names}
    return list(backbone.record(inputs, modules, read).values())


def family_of(backbone: nn.Module) -> ModuleType:
    for kind, family in FAMILIES.items():
        if isinstance(backbone, kind):
            return family
    names = ', '.join(kind.__name__ for kind in FAMILIES)
    raise AttentionPictureError(
        f'There are pictures for {names}, not for a {type(backbone).__name__}.'
    )


def _choose(backbone: nn.Module, wanted: Sequence[str]) -> list[str]:
    """Full names of the wanted layers; a stage ('2') stands for all of its layers."""
    names = {x: {x, x.split('.')[0], 'all'} for x in family_of(backbone).attention_layers(backbone)}
    if unknown := {*wanted}.difference(*names.values()):
        raise AttentionPictureError(
            f'There is no layer {min(unknown)}. This backbone has {", ".join(names)}.'
        )
    return [layer for layer, aliases in names.items() if aliases & {*wanted}]


def _make_scene(
    image: np.ndarray, point: tuple[float, float] | None, content: Sequence[int]
) -> Scene:
    (rows, columns), (height, width) = image.shape[:2], content
    x, y = point or (columns / 2, rows / 2)
    if not (0 <= x < columns and 0 <= y < rows):
        raise AttentionPictureError('The point is outside the image.')
    return Scene(image, height, width, (x * width / columns, y * height / rows))

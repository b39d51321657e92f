"""Pictures of what the attention of the four families does on an image.

The attention is computed again from the inputs of the attention layers, recorded in one forward
pass, and from their weights: the fast paths of the network hold no attention matrices.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.visualization.attention.biformer import BiFormerPictures
from mmbixt.visualization.attention.bisa_swin import BiSASwinPictures
from mmbixt.visualization.attention.bixt import BiXTPictures
from mmbixt.visualization.attention.drawing import Scene
from mmbixt.visualization.attention.pictures import (
    AttentionPictureError,
    Heads,
    Pictures,
    check_point,
)
from mmbixt.visualization.attention.xcit import XCiTPictures

__all__ = ['AttentionPictureError', 'attention_figures', 'plan_figures', 'summary_figure']

FAMILIES = {
    BiXT: BiXTPictures,
    XCiT: XCiTPictures,
    BiFormer: BiFormerPictures,
    BiSASwin: BiSASwinPictures,
}


@torch.no_grad()
def plan_figures(
    model: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    layers: Sequence[str] | None = None,
    heads: Heads | None = None,
    point: tuple[float, float] | None = None,
    content: tuple[int, int] | None = None,
) -> dict[str, Callable[[], Figure]]:
    """The pictures of a model's attention, each drawn when it is called.

    Args:
        model: a model of mmseg or mmdet with a backbone of ours, or such a backbone.
        inputs: the image as the backbone gets it, preprocessed, (1,3,H,W).
        image: the same image as it is drawn, (h,w,3) in uint8, RGB, of any size.
        layers: names of layers, as strings from 0: '7', or '2.5' for block 5 of stage 2 in
            backbones with stages, or '2' for all of that stage; 'all'. Default: a few of each
            family's.
        heads: 'mean', 'each' or the number of one (from 0). Default: what suits each picture.
        point: (x, y) in pixels of ``image``, for the pictures that are of one (BiFormer,
            BiSA-Swin); default: its centre.
        content: (rows, columns) of the inputs that the image fills, from the top left; what is
            beyond is padding. Default: all.

    Returns:
        By file name, which begins with the layer.
    """
    return _pictures(model, inputs, image, point, content, heads).plan(layers)


def attention_figures(
    model: nn.Module, inputs: Tensor, image: np.ndarray, **options
) -> dict[str, Figure]:
    """The same pictures, drawn; see :func:`plan_figures`."""
    return {name: draw() for name, draw in plan_figures(model, inputs, image, **options).items()}


@torch.no_grad()
def summary_figure(
    model: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    point: tuple[float, float] | None = None,
    content: tuple[int, int] | None = None,
) -> Figure | None:
    """One picture for the whole network, about 1000 pixels wide.

    Arguments are those of :func:`plan_figures`. None if the backbone is none of ours.
    """
    if not isinstance(getattr(model, 'backbone', model), tuple(FAMILIES)):
        return None
    return _pictures(model, inputs, image, point, content).summary()


def family_of(backbone: nn.Module) -> type[Pictures]:
    for kind, family in FAMILIES.items():
        if isinstance(backbone, kind):
            return family
    names = ', '.join(kind.__name__ for kind in FAMILIES)
    raise AttentionPictureError(
        f'There are pictures of {names}; the backbone of this model is a {type(backbone).__name__}.'
    )


def _pictures(
    model: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    point: tuple[float, float] | None,
    content: tuple[int, int] | None,
    heads: Heads | None = None,
) -> Pictures:
    backbone = getattr(model, 'backbone', model)
    family = family_of(backbone)
    height, width = inputs.shape[2:] if content is None else content
    rows, columns = image.shape[:2]
    x, y = (columns / 2, rows / 2) if point is None else point
    check_point((x, y), columns, rows)
    scene = Scene(image, height, width, (x * width / columns, y * height / rows))
    return family(backbone, inputs, scene, heads)

"""Pictures of what the attention of the four families does on an image.

They come from what went into the attention layers in one forward pass, and from the layers' own
weights: the fast paths that the network runs on have no attention matrices to be looked at.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.visualization.attention import biformer, bisa_swin, bixt, xcit
from mmbixt.visualization.attention.choices import (
    AttentionPictureError,
    Heads,
    Request,
    check_point,
)
from mmbixt.visualization.attention.drawing import Scene

__all__ = ['AttentionPictureError', 'attention_figures', 'plan_figures', 'summary_figure']

FAMILIES = {BiXT: bixt, XCiT: xcit, BiFormer: biformer, BiSASwin: bisa_swin}


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
        image: the same image to be looked at, (h,w,3) in uint8, RGB, of any size.
        layers: names of layers, as strings from 0: '7', or '2.5' for block 5 of stage 2 in
            backbones with stages, or '2' for all of that stage; 'all'. Default: a few of each
            family's.
        heads: 'mean', 'each' or the number of one (from 0). Default: what suits each picture.
        point: (x, y) in pixels of ``image``, for the pictures that are of one (BiFormer,
            BiSA-Swin); default: its centre.
        content: (rows, columns) of the inputs that the image fills, from the top left; what is
            beyond is padding. Default: all.

    Returns:
        By names to be used for files, which begin with the layer.
    """
    backbone = getattr(model, 'backbone', model)
    family = _family(backbone)
    if family is None:
        names = ', '.join(known.__name__ for known in FAMILIES)
        raise AttentionPictureError(
            f'There are pictures of {names}; the backbone of this model is a '
            f'{type(backbone).__name__}.'
        )
    return family.plan(_request(backbone, inputs, image, layers, heads, point, content))


@torch.no_grad()
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
    """One picture of the most telling maps, about 1000 pixels wide.

    Args:
        model: as in :func:`plan_figures`, and so are the others.
        inputs: (1,3,H,W).
        image: (h,w,3).
        point: (x, y).
        content: (rows, columns).

    Returns:
        None if the backbone is none of ours.
    """
    backbone = getattr(model, 'backbone', model)
    family = _family(backbone)
    if family is None:
        return None
    return family.summary(_request(backbone, inputs, image, None, None, point, content))


def _family(backbone: nn.Module):
    return next((module for kind, module in FAMILIES.items() if isinstance(backbone, kind)), None)


def _request(
    backbone: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    layers: Sequence[str] | None,
    heads: Heads | None,
    point: tuple[float, float] | None,
    content: tuple[int, int] | None,
) -> Request:
    height, width = inputs.shape[2:] if content is None else content
    rows, columns = image.shape[:2]
    x, y = (columns / 2, rows / 2) if point is None else point
    check_point((x, y), columns, rows)
    scene = Scene(image, height, width)
    at = (x * width / columns, y * height / rows)
    return Request(backbone, inputs, scene, layers, heads, at)

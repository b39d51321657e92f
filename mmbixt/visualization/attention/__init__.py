"""Pictures of the attention of the four families for an image.

The attention is computed again by the layers from their inputs, which one forward pass records: the
fast paths of the network do not compute attention matrices.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.visualization.attention.biformer import BiFormerPictures
from mmbixt.visualization.attention.bisa_swin import BiSASwinPictures
from mmbixt.visualization.attention.bixt import BiXTPictures
from mmbixt.visualization.attention.drawing import NARROW, Scene
from mmbixt.visualization.attention.pictures import AttentionPictureError, Pictures, check_point
from mmbixt.visualization.attention.xcit import XCiTPictures

__all__ = ['AttentionPictureError', 'attention_figures', 'draw_figures', 'summary_figure']

FAMILIES = {
    BiXT: BiXTPictures,
    XCiT: XCiTPictures,
    BiFormer: BiFormerPictures,
    BiSASwin: BiSASwinPictures,
}


@torch.no_grad()
def draw_figures(
    model: nn.Module,
    inputs: Tensor,
    image: np.ndarray,
    layers: Sequence[str] | None = None,
    heads: str | int | None = None,
    point: tuple[float, float] | None = None,
    content: tuple[int, int] | None = None,
) -> Iterator[tuple[str, Figure]]:
    """Generate (file name, picture) of the attention of a model.

    Args:
        model: a model of mmseg or mmdet with a backbone of ours, or such a backbone.
        inputs: the preprocessed image, (1,3,H,W).
        image: the image to draw on, (h,w,3) in uint8, RGB, of any size.
        layers: names of layers, counted from 0: '7', or '2.5' for block 5 of stage 2 in backbones
            with stages, or '2' for all layers of that stage; 'all'. Default: a few layers.
        heads: 'mean', 'each' or the number of a head (from 0). Default: depends on the picture.
        point: (x, y) in pixels of ``image``, for the attention of one point (BiFormer, BiSA-Swin);
            default: the centre.
        content: (rows, columns) of the inputs that the image fills, from the top left; the rest is
            padding. Default: all.
    """
    backbone = getattr(model, 'backbone', model)
    rows, columns = image.shape[:2]
    height, width = content or inputs.shape[2:]
    x, y = point or (columns / 2, rows / 2)
    check_point((x, y), columns, rows)
    scene = Scene(image, height, width, (x * width / columns, y * height / rows))
    yield from family_of(backbone)(backbone, inputs, scene, heads).figures(layers)


def attention_figures(*args, **options) -> dict[str, Figure]:
    """The pictures of :func:`draw_figures`, by file name."""
    return dict(draw_figures(*args, **options))


@torch.no_grad()
def summary_figure(
    model: nn.Module, inputs: Tensor, image: np.ndarray, content: tuple[int, int] | None = None
) -> Figure | None:
    """One picture of the whole network; pictures of a point show the centre.

    Arguments are those of :func:`draw_figures`. None for backbones of other packages.
    """
    backbone = getattr(model, 'backbone', model)
    if not isinstance(backbone, tuple(FAMILIES)):
        return None
    height, width = content or inputs.shape[2:]
    scene = Scene(image, height, width, (width / 2, height / 2), NARROW)
    return family_of(backbone)(backbone, inputs, scene).summary()


def family_of(backbone: nn.Module) -> type[Pictures]:
    for kind, family in FAMILIES.items():
        if isinstance(backbone, kind):
            return family
    names = ', '.join(kind.__name__ for kind in FAMILIES)
    raise AttentionPictureError(
        f'There are pictures for {names}; the backbone of this model is a '
        f'{type(backbone).__name__}.'
    )

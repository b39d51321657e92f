"""Pictures of what the attention of the four families does on an image.

The attention is computed again from the inputs of the attention layers, recorded in one forward
pass, and from their weights: the fast paths of the network hold no attention matrices.
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
from mmbixt.visualization.attention.drawing import Scene
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
    """The pictures of a model's attention with their file names, one after the other.

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
    """
    backbone = getattr(model, 'backbone', model)
    rows, columns = image.shape[:2]
    height, width = content or inputs.shape[2:]
    x, y = point or (columns / 2, rows / 2)
    check_point((x, y), columns, rows)
    scene = Scene(image, height, width, (x * width / columns, y * height / rows))
    yield from family_of(backbone)(backbone, inputs, scene, heads).figures(layers)


def attention_figures(*args, **options) -> dict[str, Figure]:
    """The same pictures by their names; arguments are those of :func:`draw_figures`."""
    return dict(draw_figures(*args, **options))


@torch.no_grad()
def summary_figure(
    model: nn.Module, inputs: Tensor, image: np.ndarray, content: tuple[int, int] | None = None
) -> Figure | None:
    """One picture for the whole network; of the centre, if it is of a point.

    Arguments are those of :func:`draw_figures`. None if the backbone is none of ours.
    """
    backbone = getattr(model, 'backbone', model)
    if not isinstance(backbone, tuple(FAMILIES)):
        return None
    height, width = content or inputs.shape[2:]
    scene = Scene(image, height, width, (width / 2, height / 2))
    return family_of(backbone)(backbone, inputs, scene).summary()


def family_of(backbone: nn.Module) -> type[Pictures]:
    for kind, family in FAMILIES.items():
        if isinstance(backbone, kind):
            return family
    names = ', '.join(kind.__name__ for kind in FAMILIES)
    raise AttentionPictureError(
        f'There are pictures of {names}; the backbone of this model is a {type(backbone).__name__}.'
    )

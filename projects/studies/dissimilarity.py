"""Structural dissimilarity of the first attention of two networks (BiSA's Figures 4 to 7).

For each cell of each channel ``(1 - SSIM) / 2``: 0 where the surroundings of the cell are the same
in the feature maps of both, 0.5 where they are unrelated, 1 where they are opposite. The paper
leaves open the window, the range of the data, and which tensor of the layer is compared. Here these
are 7 x 7 cells of equal weight (scikit-image's default), the range of the channel in both maps, and
the output of the attention before it is added to its input.
"""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.attention import LatentAttention
from mmbixt.errors import UserError
from projects.attention import attention_layers, record_layers
from projects.attention.drawing import Panel, View, sheet

CHANNELS = 4  # drawn: those that differ most
SCALE = Normalize(0, 1), '(1 - SSIM) / 2', (0, 0.25, 0.5, 0.75, 1), ''
SENTENCE = (
    'The output of layer {name} of both networks. Blue: the same structure here; pale: unrelated; '
    'red: opposite. The mean over all {count} channels, and the {shown} channels that differ most.'
)


@torch.no_grad()
def first_feature_map(model: nn.Module, inputs: Tensor) -> tuple[Tensor, str, int]:
    """The output of the first attention for an image (1,3,H,W): (C,H',W'), its layer and stride."""
    (layer,) = record_layers(model, inputs, [*attention_layers(model)][:1])
    if isinstance(layer.module, LatentAttention):
        raise UserError('The first attention updates only latents, without a map.')
    outputs = layer.module(*layer.inputs)
    tokens = (outputs[-1] if isinstance(outputs, tuple) else outputs)[0]  # BiXT: latents, tokens
    tokens = tokens.unflatten(0, layer.grid) if tokens.ndim == 2 else tokens
    return tokens.permute(2, 0, 1), layer.name, layer.stride


def dissimilarity(first: Tensor, second: Tensor) -> Tensor:
    """Of two feature maps (C,H,W) to (C,H,W): see the top of this file."""
    try:
        from skimage.metrics import structural_similarity
    except ImportError as error:
        raise ImportError(f'pip install scikit-image: {error}') from None
    maps = []
    for pair in torch.stack((first, second), 1).double().cpu().numpy():
        spread = max(np.ptp(pair), 1e-12)
        maps.append(structural_similarity(*pair, data_range=spread, full=True)[1])
    return (1 - torch.from_numpy(np.stack(maps))) / 2


def dissimilarity_figure(
    models: Sequence[nn.Module],
    inputs: Sequence[Tensor],
    image: np.ndarray,
    title: str,
    content: tuple[int, int] | None = None,
) -> Figure:
    """A picture for two models, each with its preprocessed image (1,3,H,W); the other arguments are
    those of :func:`projects.attention.attention_figures`."""
    found = [first_feature_map(*pair) for pair in zip(models, inputs, strict=True)]
    (first, name, stride), (second, *_) = found
    if first.shape != second.shape:
        sizes = ' and '.join(' x '.join(map(str, maps.shape)) for maps, *_ in found)
        raise UserError(f'The first layers differ in channels, rows, columns: {sizes}.')
    view = View(image, *(content or inputs[0].shape[2:]))
    rows, columns = (-(-side // stride) for side in (view.height, view.width))
    maps = dissimilarity(first[:, :rows, :columns], second[:, :rows, :columns])
    means = maps.mean((1, 2))
    shown = means.argsort(descending=True)[:CHANNELS].tolist()
    panels = [Panel('image'), Panel(f'all channels: {means.mean():.2f}', maps.mean(0))]
    panels += [Panel(f'channel {i}: {means[i]:.2f}', maps[i]) for i in shown]
    sentence = SENTENCE.format(name=name, count=len(maps), shown=len(shown))
    return sheet(view, stride, panels, (title, sentence), 3, SCALE)[0]

"""Pictures of a shape of points: its parts, and the latents of BiXT to which its points attend."""

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor

from projects.attention.bixt import matrices
from projects.points.grouping import nearest_points
from projects.points.network import PointBiXT

COLOURS = np.array(colormaps['tab10'].colors)  # of the latents drawn, and of parts
GREY = (0.8, 0.8, 0.8)


@torch.no_grad()
def latents_of_points(
    backbone: PointBiXT, points: Tensor, category: Tensor | None, layer: int
) -> Tensor:
    """For each point of a shape (1,N,axes), the latent (N,) that it attends to most in a layer.

    After a grouping, that of its nearest anchor. Heads are averaged.
    """
    places, found = [points[..., :3]], {}
    attention = backbone.blocks[layer].cross_attention_latents_token.attn
    handles = [
        g.register_forward_hook(lambda *a: places.append(a[2][0])) for g in backbone.groupings
    ]

    def read(module: torch.nn.Module, inputs: tuple) -> None:
        _, over_latents = matrices(module, *inputs)  # (1,h,M,N)
        if over_latents is None:
            raise ValueError(
                f'layer={layer}: points do not attend in the last layer of a classifier.'
            )
        found.update(places=places[-1], latents=over_latents[0].mean(0).argmax(0))

    handles.append(attention.register_forward_pre_hook(read))
    try:
        backbone.eval()(points, category)
    finally:
        for handle in handles:
            handle.remove()
    _, nearest = nearest_points(points[..., :3], found['places'], 1)
    return found['latents'][nearest[0, :, 0]]


def draw_shape(
    backbone: PointBiXT,
    points: Tensor,
    category: Tensor | None = None,
    parts: Tensor | None = None,
    layer: int = 0,
    latents: int = 6,
) -> Figure:
    """A shape (1,N,axes) coloured by its parts (1,N), and by the latents that most points choose.

    Points of other latents are grey, and so are points without parts.
    """
    chosen = latents_of_points(backbone, points, category, layer).cpu()
    counts = chosen.bincount(minlength=backbone.latents.shape[1])
    colours = np.tile(GREY, (len(counts), 1))
    strongest = counts.argsort(descending=True)[:latents]
    strongest = strongest[counts[strongest] > 0].numpy()
    colours[strongest] = COLOURS[: len(strongest)]
    by_latent = f'layer {layer}: the latent that each point attends to most'
    panels = {'shape': np.full((len(chosen), 3), GREY[0]), by_latent: colours[chosen]}
    if parts is not None:
        _, numbers = np.unique(parts[0].cpu(), return_inverse=True)
        panels = {'true parts': COLOURS[numbers], by_latent: colours[chosen]}
    figure = Figure(figsize=(9, 4.6), layout='constrained', dpi=150)
    x, y, z = points[0, :, :3].cpu().numpy().T
    for i, (title, colour) in enumerate(panels.items(), start=1):
        ax = figure.add_subplot(1, 2, i, projection='3d')
        ax.scatter(x, z, y, c=colour, s=6)  # y is up
        ax.set_title(title, fontsize=11)
        ax.set_box_aspect([np.ptp(axis) or 1 for axis in (x, z, y)], zoom=1.2)
        ax.set_axis_off()
    return figure

"""BiXT: which latent each patch attends to most, and where these, or all latents, attend."""

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.attention import LatentAttention
from mmbixt.attention.bidirectional import bidirectional_attention_maps
from mmbixt.layers.softmax_attention import attention_scores, split_heads
from projects.attention.drawing import RED_AND_BLUE, Layer, Panel, View, sheet

COLOURS = torch.tensor(colormaps['Set1'].colors)[:4]  # of the latents drawn
OTHERS = 0.6  # grey, for latents without their own colour
ALL = f'Where each latent attends in the image; {RED_AND_BLUE}.'
FEW = (
    'Latents and patches attend to each other. Above: where a latent attends in the image. Below: '
    'how much the patches attend to it; those that prefer it to the other latents have its colour '
    f'at the left (grey: other latents). On the maps {RED_AND_BLUE}.'
)


def matrices(attention: nn.Module, latents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
    """Attention over the tokens and over the latents, (B,h,M,N) each, of what a layer gets.

    The second is None in the last layer of a classifier, where the tokens do not attend.
    """
    r_tokens, _ = split_heads(attention.rv_patches(tokens), 2, attention.num_heads)
    if isinstance(attention, LatentAttention):
        (r_latents,) = split_heads(attention.r_latents(latents), 1, attention.num_heads)
        return attention_scores(r_latents, r_tokens, attention.scale).softmax(dim=-1), None
    r_latents, _ = split_heads(attention.rv_latents(latents), 2, attention.num_heads)
    return bidirectional_attention_maps(r_latents, r_tokens, attention.scale)


def draw(layer: Layer, view: View) -> Figure:
    over_tokens, over_latents = (  # (M,H',W'), times their number, so that uniform attention is 1
        None if x is None else view.mean_of_heads(x[0]).unflatten(-1, layer.grid) * x.shape[dim]
        for x, dim in zip(matrices(layer.module, *layer.inputs), (3, 2), strict=True)
    )
    number, heads = len(over_tokens), view.text_of_heads
    title = f'BiXT, layer {layer.name}: what the {number} latents attend to ({heads})'
    if over_latents is None or view.all_latents:
        panels = [Panel(f'latent {i}', x) for i, x in enumerate(over_tokens)]
        return sheet(view, layer.stride, panels, (title, ALL), columns=8)[0]
    # the latents to which most tokens attend most
    chosen = over_latents.argmax(0).cpu()
    counts = chosen.flatten().bincount(minlength=number)
    # of latents that no patch chose, those with the most attention first
    order = (counts + over_latents.mean((1, 2)).cpu() / number).argsort(descending=True)
    shown = order[: len(COLOURS)].tolist()
    colours = torch.full((number, 3), OTHERS)
    colours[shown] = COLOURS[: len(shown)]
    above, below = [Panel('image')], [Panel('latent of each patch', colours[chosen])]
    for i, colour in zip(shown, COLOURS.tolist(), strict=False):
        above.append(Panel(f'latent {i}', over_tokens[i], colour))
        below.append(Panel(f'preferred by {counts[i] / counts.sum():.0%}', over_latents[i], colour))
    return sheet(view, layer.stride, above + below, (title, FEW), columns=len(above))[0]

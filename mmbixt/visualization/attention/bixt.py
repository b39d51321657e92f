"""BiXT: which latent each patch attends to most, and where these, or all latents, attend."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.visualization.attention.drawing import RED_AND_BLUE, Panel, View, sheet
from mmbixt.visualization.attention.layer import Layer

COLOURS = torch.tensor(colormaps['Set1'].colors)[:4]  # of the latents drawn
OTHERS = 0.6  # grey, for latents without their own colour
ALL = f'Where each latent attends in the image; {RED_AND_BLUE}.'
FEW = (
    'Latents and patches attend to each other. Above: where a latent attends in the image. Below: '
    'how much the patches attend to it; those that prefer it to the other latents have its colour '
    f'at the left (grey: other latents). On the maps {RED_AND_BLUE}.'
)


def default_layer(attentions: Mapping[str, nn.Module], out_indices: Sequence[int]) -> str:
    """The second feature map: in deep layers the latents are often alike."""
    names = [*attentions]  # fewer if layers share their attention
    return next((name for name in names if name == str(out_indices[:2][-1])), names[-1])


def attention_maps(layer: Layer) -> tuple[Tensor, Tensor | None]:
    """Attention (h,M,H',W') of each latent over the tokens, times N, and of each token over the
    latents, times M: uniform attention is 1. The second is None if the tokens do not attend."""
    over_tokens, over_latents = layer.module.attention_maps(*layer.inputs)  # (1,h,M,N) each
    latents, tokens = over_tokens.shape[2:]
    over_tokens = over_tokens[0].unflatten(-1, layer.grid) * tokens
    if over_latents is None:
        return over_tokens, None
    return over_tokens, over_latents[0].unflatten(-1, layer.grid) * latents


def draw(layer: Layer, view: View) -> Figure:
    over_tokens, over_latents = attention_maps(layer)
    over_tokens = layer.mean_of_heads(over_tokens)
    text = f'the {len(over_tokens)} latents attend to ({layer.text_of_heads})'
    title = f'BiXT, layer {layer.name}: what {text}'
    if over_latents is None or layer.all_latents:
        return _draw_all(layer, view, over_tokens, title)
    return _draw_few(layer, view, over_tokens, layer.mean_of_heads(over_latents), title)


def _draw_all(layer: Layer, view: View, over_tokens: Tensor, title: str) -> Figure:
    panels = [Panel(f'latent {i}', x, layer.stride) for i, x in enumerate(over_tokens)]
    return sheet(view, panels, title, ALL, columns=8)[0]


def _draw_few(
    layer: Layer, view: View, over_tokens: Tensor, over_latents: Tensor, title: str
) -> Figure:
    """The latents to which most tokens attend most; maps are (M,H',W')."""
    chosen = over_latents.argmax(0).cpu()
    counts = chosen.flatten().bincount(minlength=len(over_latents))
    # of latents that no patch chose, those with the most attention first
    order = (counts + over_latents.mean((1, 2)).cpu() / len(over_latents)).argsort(descending=True)
    shown = order[: len(COLOURS)].tolist()
    colours = torch.full((len(over_latents), 3), OTHERS)
    colours[shown] = COLOURS[: len(shown)]
    above, below = [Panel('image')], [Panel('latent of each patch', colours[chosen], layer.stride)]
    for i, colour in zip(shown, COLOURS.tolist(), strict=False):
        above.append(Panel(f'latent {i}', over_tokens[i], layer.stride, colour))
        caption = f'preferred by {counts[i] / counts.sum():.0%}'
        below.append(Panel(caption, over_latents[i], layer.stride, colour))
    return sheet(view, above + below, title, FEW, columns=len(above))[0]

"""BiXT: which latent each patch attends to most, and where these latents attend."""

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones import BiXT
from mmbixt.visualization.attention.drawing import RED_AND_BLUE, Panel, Scene, sheet
from mmbixt.visualization.attention.layer import Layer

COLOURS = torch.tensor(colormaps['Set1'].colors)[:4]  # of the latents drawn
OTHERS = 0.6  # grey, for latents without their own colour
SENTENCE = (
    'Latents and patches attend to each other. Above: where a latent attends in the image. Below: '
    'how much the patches attend to it, and the share of the patches that attend to it most; these '
    f'have its colour at the left (grey: other latents). On the maps {RED_AND_BLUE}.'
)


def attention_layers(backbone: BiXT) -> dict[str, tuple[nn.Module, int]]:
    blocks = enumerate(backbone.blocks[: backbone.num_bidirectional])
    stride = backbone.patch_stride
    return {str(i): (block.cross_attention_latents_token.attn, stride) for i, block in blocks}


def default_layer(backbone: BiXT) -> str:
    """The second feature map: in deep layers the latents are often alike."""
    return str(backbone.out_indices[:2][-1])


def attention_maps(layer: Layer) -> tuple[Tensor, Tensor]:
    """Attention (h,M,H',W') of each latent over the tokens, times N, and of each token over the
    latents, times M: uniform attention is 1."""
    both = layer.module.attention_maps(*layer.inputs)  # (1,h,M,N) each
    latents, tokens = both[0].shape[2:]
    over_tokens, over_latents = (maps[0].unflatten(-1, layer.grid) for maps in both)
    return over_tokens * tokens, over_latents * latents


def draw(layer: Layer, scene: Scene) -> Figure:
    over_tokens, over_latents = map(layer.mean_of_heads, attention_maps(layer))  # (M,H',W') each
    chosen = over_latents.argmax(0).cpu()
    counts = chosen.flatten().bincount(minlength=len(over_latents))
    # of latents that no patch chose, those with the most attention first
    order = (counts + over_latents.mean((1, 2)).cpu() / len(over_latents)).argsort(descending=True)
    shown = order[: len(COLOURS)].tolist()
    colours = torch.full((len(over_latents), 3), OTHERS)
    colours[shown] = COLOURS[: len(shown)]
    above, below = [Panel('image')], [Panel('latent of each patch', colours[chosen], layer.stride)]
    for i in shown:
        above.append(Panel(f'latent {i}', over_tokens[i], layer.stride))
        caption = f'patches to it: {counts[i] / counts.sum():.0%}'
        below.append(Panel(caption, over_latents[i], layer.stride))
    title = f'BiXT, layer {layer.name}: what the {len(over_latents)} latents attend to'
    title = f'{title} ({layer.text_of_heads})'
    figure, axes = sheet(scene, above + below, title, SENTENCE, columns=len(above))
    for i, colour in enumerate(COLOURS[: len(shown)].tolist(), start=1):
        for ax in (axes[i], axes[len(above) + i]):
            ax.title.set(color=colour, fontweight='bold')
    return figure

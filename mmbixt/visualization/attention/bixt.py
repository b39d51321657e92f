"""BiXT: the attention of latents over the tokens, and of tokens over the latents."""

from collections.abc import Iterator, Sequence

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from mmbixt.attention import BidirectionalAttention
from mmbixt.backbones import BiXT
from mmbixt.visualization.attention.drawing import IMAGE, RED_AND_BLUE, WIDTH, Panel, sheet
from mmbixt.visualization.attention.pictures import Layer, Pictures

OTHERS = 0.6  # grey, for latents without their own colour
# for the latents that most tokens attend to
PALETTE = colormaps['Set1'].colors[:8]  # without its grey

# kinds of figures with one panel for each latent: title, and what attention is normalised over
LATENT_FIGURES = {
    'latents_over_image': ('attention of each latent to the image', 'tokens'),
    'image_over_latents': ('attention of the image to each latent', 'latents'),
}


def attention_maps(layer: Layer) -> tuple[Tensor, Tensor]:
    """Attention (h,M,H',W') of each latent over the tokens, times N, and of each token over the
    latents, times M: uniform attention is 1."""
    both = layer.module.attention_maps(*layer.inputs)  # (1,h,M,N) each
    latents, tokens = both[0].shape[2:]
    over_tokens, over_latents = (maps[0].unflatten(-1, layer.grid) for maps in both)
    return over_tokens * tokens, over_latents * latents


class BiXTPictures(Pictures):
    @staticmethod
    def attention_layers(backbone: BiXT) -> dict[str, BidirectionalAttention]:
        blocks = enumerate(backbone.blocks[: backbone.num_bidirectional])
        return {str(i): block.cross_attention_latents_token.attn for i, block in blocks}

    def stride(self, layer: str) -> int:
        return self.backbone.patch_stride

    def draw(self, layer: Layer) -> Iterator[tuple[str, Figure]]:
        both = attention_maps(layer)
        for caption, heads in self.choose_heads(layer, len(both[0]), 'mean').items():
            suffix = '' if heads == slice(None) else f'_head_{heads.start:02d}'
            name = f'BiXT, layer {layer.name}, {caption}'
            maps = [side[heads].mean(0) for side in both]
            for (kind, (title, others)), side in zip(LATENT_FIGURES.items(), maps, strict=True):
                panels = [Panel(str(i), one, layer.stride) for i, one in enumerate(side)]
                note = (
                    f'a panel for each latent, with its number · {RED_AND_BLUE} over all {others}'
                )
                yield kind + suffix, sheet(self.scene, panels, f'{name}: {title}', note, 8)[0]
            yield f'strongest_latents{suffix}', self._strongest(layer, maps, name)

    def summary(self) -> Figure:
        """The strongest latents in the layer where the latents differ most: in some layers they all
        attend to the same tokens, in particular after a short training."""
        layers = self.record(list(self.attention_layers(self.backbone)))
        maps = [[side.mean(0) for side in attention_maps(layer)] for layer in layers]
        spread = [float(over_latents.std(0, correction=0).mean()) for _, over_latents in maps]
        most = spread.index(max(spread))
        name = f'BiXT, layer {layers[most].name}, where the latents differ most'
        return self._strongest(layers[most], maps[most], name)

    def _strongest(self, layer: Layer, maps: Sequence[Tensor], name: str) -> Figure:
        """The latent that each token attends to most, and the attention of two latents."""
        over_tokens, over_latents = maps  # (M,H',W') each
        strongest, handles, named = strongest_latents(over_latents, layer.stride)
        panels = [IMAGE, strongest, Panel('its attention', over_latents.amax(0), layer.stride)]
        panels += [Panel(f'of latent {i}', over_tokens[i], layer.stride) for i in named[:2]]
        title = f'{name}: the latent that each token attends to most'
        note = (
            'strongest latent: each token in the colour of the latent that it attends to most · '
            f'its attention: how much, {RED_AND_BLUE} over all latents · of latent ...: attention '
            'of the two strongest ones over all tokens'
        )
        figure, _ = sheet(self.scene, panels, title, note, columns=3, empty=1)
        # in the axes after the panels, of which there are fewer if all tokens have one latent; for
        # wide images these axes are lower than the legend
        ax = figure.axes[len(panels)]
        ax.set_title('share of the tokens', fontsize=8)
        columns = 2 if self.scene.inches == WIDTH else 1
        options = dict(fontsize=8, frameon=False, loc='upper left', labelspacing=0.2, ncols=columns)
        ax.legend(handles=handles, **options).set_in_layout(False)
        return figure


def strongest_latents(maps: Tensor, stride: int) -> tuple[Panel, list[Patch], list[int]]:
    """The strongest latent of each token, from attention maps (M,H',W').

    Returns:
        A panel with each token in the colour of its strongest latent; the entries of a legend; the
        latents that it names, those of most tokens first.
    """
    strongest = maps.argmax(0).cpu()
    counts = torch.bincount(strongest.flatten(), minlength=len(maps))
    order = counts.argsort(descending=True)
    named = [int(i) for i in order[: len(PALETTE)] if counts[i] > 0]
    colours = torch.full((len(maps), 3), OTHERS)
    colours[named] = torch.tensor(PALETTE[: len(named)])
    share = counts / counts.sum()
    labels = {f'latent {i}: {share[i]:.1%}': colours[i].tolist() for i in named}
    if len(named) < (counts > 0).sum():
        labels[f'others: {1 - share[named].sum():.1%}'] = (OTHERS,) * 3
    handles = [Patch(color=colour, label=label) for label, colour in labels.items()]
    return Panel('strongest latent', colours[strongest], stride), handles, named

"""XCiT: which tokens weigh most where its channels attend to one another.

A head's attention is between channels: the correlation of a query channel with a key channel over
all tokens. Queries and keys are normalised for it along the tokens, so that each channel has length
one over the image; a token takes part in all of a head's correlations by the magnitude that its
normalised query (and key) has over the head's channels. The XCiT authors show these magnitudes.
"""

from collections.abc import Callable
from functools import partial

from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.backbones import XCiT
from mmbixt.layers import CrossCovarianceAttention
from mmbixt.visualization.attention.choices import Request
from mmbixt.visualization.attention.drawing import Panel, Scene, contact_sheet

LABEL = 'magnitude (1 × = all tokens alike)'
NOTE = (
    'red: tokens with more, blue: with less weight in the correlations between channels that XCiT '
    'attends by (magnitude of the query or key, normalised along the tokens, over the channels of '
    'a head)'
)


def attention_layers(backbone: XCiT) -> dict[str, CrossCovarianceAttention]:
    return {str(i): block.attn for i, block in enumerate(backbone.blocks)}


def magnitude_maps(
    backbone: XCiT, attention: CrossCovarianceAttention, tokens: Tensor, size: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """How much each token weighs in a layer's queries and keys.

    The root of the sum over a head's d channels of the squared normalised queries (keys) of a
    token. As the squares of each channel add up to 1 over all N tokens, ``sqrt(d / N)`` is the
    magnitude of tokens that are all alike; the maps are multiples of it, so that the mean of their
    squares is 1.

    Args:
        backbone: that the layer is of.
        attention: the layer.
        tokens: what went into it, (1,N,C).
        size: (H,W) of the image.

    Returns:
        (h,H',W') each, on the grid of the tokens.
    """
    grid = tuple(-(-side // backbone.patch_size) for side in size)

    def magnitude(x: Tensor) -> Tensor:
        d, n = x.shape[2:]
        return (x[0].norm(dim=1) * (n / d) ** 0.5).unflatten(-1, grid)

    queries, keys = attention.normalised_queries_and_keys(tokens)
    return magnitude(queries), magnitude(keys)


def plan(request: Request) -> dict[str, Callable[[], Figure]]:
    """Pictures by the names of their files, each drawn when it is called."""
    backbone = request.backbone
    default = [str(i) for i in backbone.out_indices]
    layers = request.choose_layers(attention_layers(backbone), default)
    heads = {
        name: request.choose_heads(name, len(layer.temperature), 'each')
        for name, layer in layers.items()
    }
    found = request.record(layers)

    def draw(name: str) -> Figure:
        tokens = found[name][0]
        both = magnitude_maps(backbone, layers[name], tokens, request.inputs.shape[2:])
        panels = [
            Panel(f'{side}, {head}', head.of(maps), backbone.patch_size)
            for side, maps in zip(('query', 'key'), both, strict=True)
            for head in heads[name]
        ]
        title = f'XCiT, layer {name}: magnitude of each token in the queries and the keys'
        return _sheet(request.scene, panels, title, columns=min(len(heads[name]), 8))

    return {f'layer_{int(name):02d}_query_key_magnitude': partial(draw, name) for name in layers}


def summary(request: Request) -> Figure:
    """Magnitudes in four layers, the mean over their heads."""
    backbone = request.backbone
    layers = attention_layers(backbone)
    last = len(layers) - 1
    layers = {name: layers[name] for name in (str(round(last * i / 3)) for i in range(4))}
    found = request.record(layers)
    both = {
        name: magnitude_maps(backbone, layer, found[name][0], request.inputs.shape[2:])
        for name, layer in layers.items()
    }
    panels = [
        Panel(f'{kind}, layer {name}', maps[side].mean(0), backbone.patch_size)
        for side, kind in enumerate(('query', 'key'))
        for name, maps in both.items()
    ]
    title = 'XCiT: magnitude of each token in queries and keys, mean over the heads'
    return _sheet(request.scene, panels, title, columns=len(layers))


def _sheet(scene: Scene, panels: list[Panel], title: str, columns: int) -> Figure:
    return contact_sheet(scene, panels, title, NOTE, LABEL, columns, panel_width=2.4)

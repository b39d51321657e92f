"""BiSA-Swin: the attention of a point in its window, in both directions, and the paper's Figure 2.

Inverse self-attention normalises the scores S (N,N) of a window over the queries i, for each value
j. Figure 2 shows the highest weight that a query gets from any value::

    e_i = max_j softmax_i(S)_ij

Its layer and head are open. Padding of windows takes part, as in the network, but is not drawn.
"""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.attention.windows import Windows
from mmbixt.visualization.attention import drawing
from mmbixt.visualization.attention.drawing import RED_AND_BLUE, Panel, View
from mmbixt.visualization.attention.layer import Layer

SELF = (
    'Patches attend within their window (cyan, enlarged). Self-attention: which patches the point '
    '(+) takes its values from'
)
INVERSE = (
    '. Inverse attention: which patches the value of the point goes to; and for each patch, the '
    'highest inverse attention that any value of its window pays to it'
)


def default_layer(attentions: Mapping[str, nn.Module], out_indices: Sequence[int]) -> str:
    """The last one with inverse attention; a plain Swin Transformer has none."""
    inverse = [name for name, module in attentions.items() if module.w_msa.isa is not None]
    return [*attentions, *inverse][-1]


def window_maps(layer: Layer) -> tuple[Tensor, Tensor, Windows]:
    """The attention matrices of all windows of a layer, and the positions of their tokens.

    In the first, of self-attention (windows,h,N,N), each row (a query) sums to 1. In the second, of
    inverse self-attention (windows,h,N,N), each column (a value) sums to 1.
    """
    over_keys, over_queries = layer.module.attention_maps(*layer.inputs)
    return over_keys[0], over_queries[0], layer.inputs[1]


def highest_inverse(layer: Layer) -> Tensor:
    """The maximum over the values (h,H',W') for each query, times the number of tokens that attend
    to each other, so that uniform attention is 1: see the top of this file."""
    _, over_queries, windows = window_maps(layer)
    mask, count = layer.inputs[2], over_queries.shape[-1]
    if mask is not None:
        count = (mask == 0).sum(-1)  # (windows,1,N)
    return _join(over_queries.amax(-1) * count, windows)


def _join(x: Tensor, windows: Windows) -> Tensor:
    """Tokens of windows (windows,h,N) to (h,H',W')."""
    return windows.join(x.transpose(1, 2)[None])[0].permute(2, 0, 1)


def window_point(layer: Layer, cell: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Attention of the token in a cell (row, column), within the unmasked part of its window.

    Returns:
        Of its query over the keys, and of its value over the queries, (h,H',W') each: attention
        times the number of these tokens, so that uniform attention is 1; NaN for other tokens.
    """
    over_keys, over_queries, windows = window_maps(layer)
    cells = torch.zeros(1, windows.height, windows.width, 1)
    cells[0, cell[0], cell[1]] = 1
    window, index = windows.cut(cells)[0, :, :, 0].nonzero()[0].tolist()
    seen = torch.ones_like(over_keys[0, 0, 0], dtype=torch.bool)
    mask = layer.inputs[2]
    if mask is not None:  # a shifted window joins opposite borders of the image; -inf between them
        seen = mask[window, 0, index] == 0

    def everywhere(shares: Tensor) -> Tensor:
        maps = torch.full_like(over_keys[..., 0], torch.nan)
        maps[window] = (shares * seen.sum()).where(seen, torch.nan)
        return _join(maps, windows)

    return everywhere(over_keys[window, :, index]), everywhere(over_queries[window, :, :, index])


def draw(layer: Layer, view: View) -> Figure:
    over_keys, over_queries = window_point(layer, view.cell(layer.stride))
    has_inverse = layer.module.w_msa.isa is not None
    maps = {'self-attention of the point': over_keys}
    if has_inverse:
        maps['inverse attention of the point'] = over_queries
        maps['highest inverse attention'] = highest_inverse(layer)
    panels = [Panel('image')]
    panels += [Panel(text, layer.mean_of_heads(m), layer.stride) for text, m in maps.items()]
    title = f'BiSA-Swin, layer {layer.name}: attention in windows ({layer.text_of_heads})'
    sentence = f'{SELF}{INVERSE if has_inverse else ""}; {RED_AND_BLUE}.'
    figure, axes = drawing.sheet(view, panels, title, sentence, columns=2)
    inside = over_keys[0].isfinite().nonzero()
    (top, left), (bottom, right) = inside.amin(0).tolist(), inside.amax(0).tolist()
    box = (top, left, bottom - top + 1, right - left + 1)
    for ax in axes:
        drawing.outline(ax, box, layer.stride, 'cyan')
        drawing.mark_point(ax, view)
    for ax in axes[1:3]:  # a window is small: enlarge it
        top, left, height, width = (side * layer.stride for side in box)
        ax.set(xlim=(left, left + width), ylim=(top + height, top))
    return figure

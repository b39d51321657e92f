"""BiSA-Swin: the attention of a point in its window, in both directions, and the paper's Figure 2.

Inverse self-attention normalises the scores S (N,N) of a window over the queries i, for each value
j. Figure 2 shows the highest weight that a query gets from any value, ``max_j softmax_i(S)_ij``;
its layer and head are open. Padding of windows takes part, as in the network, but is not drawn.
"""

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.attention.inverse import BidirectionalSelfAttention
from mmbixt.attention.windows import Windows
from mmbixt.layers.softmax_attention import attention_scores, split_heads
from projects.attention.drawing import RED_AND_BLUE, Layer, Panel, View, outline, sheet

SELF = (
    'Patches attend within their window (cyan, enlarged). Self-attention: which patches the point '
    '(+) takes its values from'
)
INVERSE = (
    '. Inverse attention: which patches the value of the point goes to; and for each patch, the '
    'highest inverse attention that any value of its window pays to it'
)


def has_inverse_attention(module: nn.Module) -> bool:
    return isinstance(getattr(module, 'w_msa', None), BidirectionalSelfAttention)


def matrices(
    shifted: nn.Module, x: Tensor, windows: Windows, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Self-attention, where rows (queries) sum to one, and inverse self-attention, where columns
    (values) do, (B,windows,h,N,N) each, of what a layer gets."""
    attention = shifted.w_msa
    q, k, _ = split_heads(attention.qkv(windows.cut(x)), 3, attention.num_heads)
    bias = attention.relative_position_bias_table[attention.relative_position_index]
    bias = bias.permute(2, 0, 1) if mask is None else bias.permute(2, 0, 1) + mask
    scores = attention_scores(q, k, attention.scale, bias)
    return scores.softmax(dim=-1), scores.softmax(dim=-2)


def of_point(layer: Layer, cell: tuple[int, int]) -> list[Tensor]:
    """Attention of the token in a cell (row, column), and Figure 2, (h,H',W') each.

    Returns:
        The attention of its query over the keys and of its value over the queries, NaN for tokens
        outside of the unmasked part of its window; and Figure 2. All times the number of tokens
        that attend to each other, so that uniform attention is 1.
    """
    over_keys, over_queries = (x[0] for x in matrices(layer.module, *layer.inputs))
    _, windows, mask = layer.inputs
    cells = torch.zeros(1, windows.height, windows.width, 1)
    cells[0, cell[0], cell[1]] = 1
    window, token = windows.cut(cells)[0, :, :, 0].nonzero()[0].tolist()
    seen = torch.ones_like(over_keys[:, 0], dtype=torch.bool)  # (windows,N,N)
    if mask is not None:  # a shifted window joins opposite borders of the image; -inf between them
        seen = mask[:, 0].expand_as(seen) == 0
    maps = [torch.full_like(over_keys[..., 0], torch.nan) for _ in range(2)]  # (windows,h,N)
    maps[0][window] = over_keys[window, :, token].where(seen[window, token], torch.nan)
    maps[1][window] = over_queries[window, :, :, token].where(seen[window, token], torch.nan)
    maps.append(over_queries.amax(-1))
    counts = seen.sum(-1)[:, None]
    return [windows.join((x * counts).transpose(1, 2)[None])[0].permute(2, 0, 1) for x in maps]


def draw(layer: Layer, view: View) -> Figure:
    maps, has_inverse = of_point(layer, layer.cell(view)), has_inverse_attention(layer.module)
    names = ['self-attention of the point']
    if has_inverse:
        names += ['inverse attention of the point', 'highest inverse attention']
    panels = [Panel(name, view.mean_of_heads(x)) for name, x in zip(names, maps, strict=False)]
    title = f'BiSA-Swin, layer {layer.name}: attention in windows ({view.text_of_heads})'
    texts = title, f'{SELF}{INVERSE if has_inverse else ""}; {RED_AND_BLUE}.'
    figure, axes = sheet(view, layer.stride, [Panel('image'), *panels], texts, columns=2)
    inside = maps[0][0].isfinite().nonzero()
    (top, left), (bottom, right) = inside.amin(0).tolist(), inside.amax(0).tolist()
    box = (top, left, bottom - top + 1, right - left + 1)
    for ax in axes:
        outline(ax, box, layer.stride, 'cyan', point=view.point)
    for ax in axes[1:3]:  # a window is small: enlarge it
        top, left, height, width = (side * layer.stride for side in box)
        ax.set(xlim=(left, left + width), ylim=(top + height, top))
    return figure

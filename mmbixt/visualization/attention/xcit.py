"""XCiT: the channels that attend most to each other, and where in the image they agree.

A head has no attention between tokens, but a matrix (d,d) between its channels: the softmax of the
cosines of a query channel and of all key channels, each a map over the image.
"""

from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.visualization.attention.drawing import Panel, Scale, View, sheet
from mmbixt.visualization.attention.layer import Layer

HEADS = 4  # drawn by default: those with the highest attention
SCALE = Scale(Normalize(-3, 3), 'value (1 = root mean square over the image)', range(-3, 4))
SENTENCE = (
    'In XCiT channels attend to each other; patches do not. A row is a head: the attention of its '
    'channels (dark is high; equal attention would be {uniform:.1%}), and the query and the key '
    'with the highest attention (red square) as maps over the image. A channel attends to those '
    'whose maps agree with its own: there the product is red, and its mean is their cosine. '
    'The last row: the lengths of the query and of the key of each patch, over all heads; the '
    'shortest is blue, the longest red.'
)


def attention_maps(layer: Layer) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys (h,d,H',W') with a mean square of 1 over the image, attention (h,d,d)."""
    q_hat, k_hat, attention = (x[0] for x in layer.module.attention_maps(*layer.inputs))
    maps = ((x * x.shape[-1] ** 0.5).unflatten(-1, layer.grid) for x in (q_hat, k_hat))
    return *maps, attention


def draw(layer: Layer, view: View) -> Figure:
    queries, keys, attention = attention_maps(layer)
    highest, pairs = attention.flatten(1).max(1)
    heads = highest.argsort(descending=True)[:HEADS].sort().values.tolist()
    if layer.heads is not None:
        heads = list(layer.heads)
    count = attention.shape[-1]
    panels = []
    for head in heads:
        query, key = divmod(int(pairs[head]), count)
        product = queries[head, query] * keys[head, key]
        captions = {
            f'query of channel {query}': queries[head, query],
            f'key of channel {key}': keys[head, key],
            f'product: cosine {product.mean():.2f}': product,
        }
        panels += [None, *(Panel(text, x, layer.stride) for text, x in captions.items())]
    panels.append(Panel('image'))
    for name, maps in dict(queries=queries, keys=keys).items():
        lengths = maps.square().mean((0, 1)).sqrt()  # 1 if all are equal
        low, high = lengths.aminmax()
        spread = 6 * (lengths - low) / (high - low).clamp_min(1e-6) - 3  # over the whole scale
        panels.append(Panel(f'{name}: {low:.2f} to {high:.2f}', spread, layer.stride))
    title = f'XCiT, layer {layer.name}: the two channels of each head with the highest attention'
    figure, axes = sheet(view, panels, title, SENTENCE.format(uniform=1 / count), 4, SCALE)
    for ax, head in zip(axes[::4], heads, strict=False):
        caption = f'head {head}: up to {highest[head]:.1%}'
        _show_matrix(ax, attention[head], divmod(int(pairs[head]), count), caption)
    return figure


def _show_matrix(ax: Axes, matrix: Tensor, pair: tuple[int, int], caption: str) -> None:
    ax.set_axis_on()
    ax.imshow(matrix.float().cpu().numpy(), cmap='Greys', vmin=0)
    ax.plot(*pair[::-1], 's', mfc='none', mec='red', ms=7)
    ax.set(xticks=(), yticks=())
    ax.set_xlabel('keys', fontsize=8, labelpad=2)
    ax.set_ylabel('queries', fontsize=8, labelpad=2)
    ax.set_title(caption, fontsize=8, pad=3)

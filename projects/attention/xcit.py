"""XCiT: the channels that attend most to each other, and where in the image they agree; of
classifiers also where the class token attends.

A head has no attention between tokens, but a matrix (d,d) between its channels: the softmax of the
cosines of a query channel and of all key channels, each a map over the image.
"""

import math

from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.attention.cross_covariance import cross_covariance_maps, split_channels
from mmbixt.layers.softmax_attention import attention_scores, split_heads
from projects.attention.drawing import RED_AND_BLUE, Layer, Panel, View, sheet

HEADS = 4  # drawn by default: those with the highest attention
SCALE = Normalize(-3, 3), 'value (1 = root mean square over the image)', range(-3, 4), ''
SENTENCE = (
    'In XCiT channels attend to each other; patches do not. A row is a head: the attention of its '
    'channels (dark is high; equal attention would be {uniform:.1%}), and the query and the key '
    'with the highest attention (red square) as maps over the image. A channel attends to those '
    'whose maps agree with its own: there the product is red, and its mean is their cosine. '
    'The last row: the lengths of the query and of the key of each patch, over all heads; the '
    'shortest is blue, the longest red.'
)
OF_CLASS = (
    'Where the class token, which is classified, attends in the image in each head; '
    f'{RED_AND_BLUE} of what its attention to itself leaves.'
)


def matrices(attention: nn.Module, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys (B,h,d,N) of length one, attention (B,h,d,d), of what a layer gets."""
    queries, keys, _ = split_channels(attention.qkv(tokens), attention.num_heads)
    return cross_covariance_maps(queries, keys, attention.temperature)


def class_matrices(attention: nn.Module, tokens: Tensor) -> Tensor:
    """The attention (B,h,1+N) of the class token, the first of what a layer gets, (B,1+N,C)."""
    q, k, _ = split_heads(attention.qkv(tokens), 3, attention.num_heads)
    return attention_scores(q[:, :, :1], k, attention.scale).softmax(dim=-1).squeeze(2)


def draw(layer: Layer, view: View) -> Figure:
    q_hat, k_hat, attention = (x[0] for x in matrices(layer.module, *layer.inputs))
    # (h,d,H',W'), with a mean square of 1 over the image
    queries, keys = ((x * x.shape[-1] ** 0.5).unflatten(-1, layer.grid) for x in (q_hat, k_hat))
    highest, pairs = attention.flatten(1).max(1)
    heads = view.heads or highest.argsort(descending=True)[:HEADS].sort().values.tolist()
    count, panels = attention.shape[-1], []
    for head in heads:
        query, key = divmod(int(pairs[head]), count)
        product = queries[head, query] * keys[head, key]
        captions = {
            f'query of channel {query}': queries[head, query],
            f'key of channel {key}': keys[head, key],
            f'product: cosine {product.mean():.2f}': product,
        }
        panels += [None, *(Panel(text, x) for text, x in captions.items())]
    panels.append(Panel('image'))
    for name, x in dict(queries=queries, keys=keys).items():
        lengths = x.square().mean((0, 1)).sqrt()  # 1 if all are equal
        low, high = lengths.aminmax()
        spread = 6 * (lengths - low) / (high - low).clamp_min(1e-6) - 3  # over the whole scale
        panels.append(Panel(f'{name}: {low:.2f} to {high:.2f}', spread))
    title = f'XCiT, layer {layer.name}: the two channels of each head with the highest attention'
    texts = title, SENTENCE.format(uniform=1 / count)
    figure, axes = sheet(view, layer.stride, panels, texts, 4, SCALE)
    for ax, head in zip(axes[::4], heads, strict=False):
        ax.set_axis_on()
        ax.imshow(attention[head].float().cpu().numpy(), cmap='Greys', vmin=0)
        query, key = divmod(int(pairs[head]), count)
        ax.plot(key, query, 's', mfc='none', mec='red', ms=7)
        ax.set(xticks=(), yticks=())
        ax.set_xlabel('keys', fontsize=8, labelpad=2)
        ax.set_ylabel('queries', fontsize=8, labelpad=2)
        ax.set_title(f'head {head}: up to {highest[head]:.1%}', fontsize=8, pad=3)
    return figure


def draw_class(layer: Layer, view: View) -> Figure:
    to_itself, others = class_matrices(layer.module, *layer.inputs)[0].tensor_split([1], 1)
    # divided by its mean, because in a trained network most attention may be to itself
    others = (others / others.mean(1, keepdim=True)).unflatten(1, layer.grid)
    panels = [Panel('image')]
    for head in range(len(others)) if view.heads is None else view.heads:
        caption = f'head {head} (to itself: {to_itself[head, 0]:.1%})'
        panels.append(Panel(caption, others[head]))
    texts = f'XCiT, layer {layer.name}: where the class token attends', OF_CLASS
    return sheet(view, layer.stride, panels, texts, math.ceil(len(panels) ** 0.5))[0]

"""BiSA-Swin: the emphasis of queries by inverse self-attention, and the attention of a point.

Inverse self-attention normalises the scores S (N,N) of a window over the queries i, for each value
j. The emphasis of a query in a head is the sum of its weights over all values::

    e_i = sum_j softmax_i(S)_ij

The weights of each value sum to 1, so the mean of e over a window is 1, and e_i = 1 for all i where
attention is uniform. Padding of windows takes part, as in the network, but is not drawn.
"""

from collections.abc import Iterator, Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.attention.windows import Windows
from mmbixt.visualization.attention.drawing import RED_AND_BLUE, sheet
from mmbixt.visualization.attention.pictures import Layer
from mmbixt.visualization.attention.stages import PointMaps, StagePictures

LABEL = 'emphasis (1 × = uniform)'
NOTE = (
    'emphasis of a query: the sum of the attention of all values of its window to this query; '
    f'{RED_AND_BLUE} over the window'
)


def window_maps(layer: Layer) -> tuple[Tensor, Tensor, Windows]:
    """The attention matrices of all windows of a layer, and the positions of their tokens.

    In the first, of self-attention (windows,h,N,N), each row (a query) sums to 1. In the second, of
    inverse self-attention (windows,h,N,N), each column (a value) sums to 1.
    """
    x, windows, mask = layer.inputs
    over_keys, over_queries = layer.module.w_msa.attention_maps(x, mask, windows)
    return over_keys[0], over_queries[0], windows


def _join(x: Tensor, windows: Windows) -> Tensor:
    """Tokens of windows (windows,h,N) to (h,H',W')."""
    return windows.join(x.transpose(1, 2)[None])[0].permute(2, 0, 1)


def window_point(layer: Layer, cell: tuple[int, int]) -> PointMaps:
    """Attention of the token in a cell (row, column), within the unmasked part of its window."""
    over_keys, over_queries, windows = window_maps(layer)
    cells = torch.zeros(1, windows.height, windows.width, 1)
    cells[0, cell[0], cell[1]] = 1
    window, index = windows.cut(cells)[0, :, :, 0].nonzero()[0].tolist()
    shares = {'self-attention': over_keys[window, :, index]}
    if layer.module.w_msa.isa is not None:
        shares['inverse attention'] = over_queries[window, :, :, index]
    seen = torch.ones_like(over_keys[0, 0, 0], dtype=torch.bool)
    mask = layer.inputs[2]
    if mask is not None:  # a shifted window joins opposite borders of the image; -inf between them
        seen = mask[window, 0, index] == 0
    found = {}
    for kind, one in shares.items():
        everywhere = torch.full_like(over_keys[..., 0], torch.nan)
        everywhere[window] = (one * seen.sum()).where(seen, torch.nan)
        found[kind] = _join(everywhere, windows)
    cells = found['self-attention'][0].isfinite().nonzero()
    (top, left), (bottom, right) = cells.amin(0).tolist(), cells.amax(0).tolist()
    return PointMaps(found, (top, left, bottom - top + 1, right - left + 1))


class BiSASwinPictures(StagePictures):
    point_note = (
        'cyan: the window of the point (+) · self-attention: of its query to the values · inverse '
        f'attention: of its value to the queries · {RED_AND_BLUE} over the window'
    )

    point_maps = staticmethod(window_point)

    def _inverse_layers(self) -> list[str]:
        """Layers with inverse attention; a plain Swin Transformer has none."""
        layers = self.attention_layers(self.backbone)
        return [name for name, layer in layers.items() if layer.w_msa.isa is not None]

    def default_layers(self) -> list[str]:
        return [*self._inverse_layers(), *super().default_layers()]

    def draw(self, layer: Layer) -> Iterator[tuple[str, Figure]]:
        if layer.module.w_msa.isa is not None:
            yield 'inverse_emphasis', self._emphasis([layer])
        yield 'point_attention', self.point_figure([layer])

    def summary(self) -> Figure:
        """The emphasis in two layers, three heads each; without any the attention of a point."""
        inverse = self._inverse_layers()
        return self._emphasis(self.record(inverse[:2]), most=3) if inverse else super().summary()

    def _emphasis(self, layers: Sequence[Layer], most: int | None = None) -> Figure:
        """The emphasis of all queries, in all heads of some layers or in the first ``most``."""
        panels = []
        for layer in layers:
            share = 1 - float(layer.module.w_msa.lam)
            _, over_queries, windows = window_maps(layer)
            emphasis = _join(over_queries.sum(-1), windows)  # see the top of this file
            maps = {f'emphasis ({share:.2g} of the output)': emphasis}
            panels += self.panels(layer, maps, 'each')[:most]
        title = f'{type(self.backbone).__name__}: which queries inverse self-attention emphasises'
        return sheet(self.scene, panels, title, NOTE, 3, LABEL)[0]

"""XCiT: the weights of tokens in the attention between channels.

The scores of a head (d,d) are products of queries and keys (d,N) over the N tokens, after each
channel is normalised over the tokens. So the contribution of a token to the scores depends on the
norm of its normalised query (key) over the d channels. The XCiT authors show these magnitudes.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.attention import CrossCovarianceAttention
from mmbixt.backbones import XCiT
from mmbixt.visualization.attention.drawing import sheet
from mmbixt.visualization.attention.pictures import Layer, Pictures

LABEL = 'magnitude (1 × = all tokens equal)'
NOTE = (
    'red: tokens with more, blue: with less weight in the cosines between channels (magnitude '
    'of the query or key, normalised along the tokens, over the channels of a head)'
)


def magnitude_maps(layer: Layer) -> dict[str, Tensor]:
    """Magnitudes (h,H',W') of the queries and keys of each token.

    ``sqrt(N / d)`` times the norm of the normalised query (key) of a token over the d channels of a
    head. The squares of each channel sum to 1 over the N tokens, so the mean of the squared
    magnitudes is 1.
    """
    both = layer.module.normalised_queries_and_keys(layer.inputs[0])  # (1,h,d,N) each
    return {
        name: (x[0].norm(dim=1) * (x.shape[3] / x.shape[2]) ** 0.5).unflatten(-1, layer.grid)
        for name, x in zip(('query', 'key'), both, strict=True)
    }


class XCiTPictures(Pictures):
    @staticmethod
    def attention_layers(backbone: XCiT) -> dict[str, CrossCovarianceAttention]:
        return {str(i): block.attn for i, block in enumerate(backbone.blocks)}

    def stride(self, layer: str) -> int:
        return self.backbone.patch_size

    def draw(self, layer: Layer) -> Iterator[tuple[str, Figure]]:
        yield 'query_key_magnitude', self._magnitudes([layer], 'each')

    def summary(self) -> Figure:
        """Magnitudes in four layers, mean over the heads."""
        last = len(self.backbone.blocks) - 1
        return self._magnitudes(self.record([str(round(last * i / 3)) for i in range(4)]), 'mean')

    def _magnitudes(self, layers: Sequence[Layer], heads: str) -> Figure:
        panels = [p for x in layers for p in self.panels(x, magnitude_maps(x), heads)]
        title = 'XCiT: magnitude of each token in the queries and the keys'
        return sheet(self.scene, panels, title, NOTE, 4, LABEL)[0]

"""XCiT: which tokens weigh most where its channels attend to one another.

A head's attention is between channels: the correlation of a query channel with a key channel over
all tokens. Queries and keys are normalised for it along the tokens, so that each channel has length
one over the image; a token takes part in all of a head's correlations by the magnitude that its
normalised query (and key) has over the head's channels. The XCiT authors show these magnitudes.
"""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.backbones import XCiT
from mmbixt.layers import CrossCovarianceAttention
from mmbixt.visualization.attention.drawing import sheet
from mmbixt.visualization.attention.pictures import Layer, Pictures

LABEL = 'magnitude (1 × = all tokens alike)'
NOTE = (
    'red: tokens with more, blue: with less weight in the correlations between channels (magnitude '
    'of the query or key, normalised along the tokens, over the channels of a head)'
)


def magnitude_maps(layer: Layer) -> dict[str, Tensor]:
    """How much each token weighs in a layer's queries and keys.

    Maps (h,H',W') of the norm of a token's normalised query (key) over the d channels of a head. As
    the squares of each channel add up to 1 over all N tokens, ``sqrt(d / N)`` is the norm of tokens
    that are all alike; the maps are multiples of it, so that the mean of their squares is 1.
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
        """Magnitudes in four layers, the mean over their heads."""
        last = len(self.backbone.blocks) - 1
        return self._magnitudes(self.record([str(round(last * i / 3)) for i in range(4)]), 'mean')

    def _magnitudes(self, layers: Sequence[Layer], heads: str) -> Figure:
        panels = [p for x in layers for p in self.panels(x, magnitude_maps(x), heads)]
        title = 'XCiT: magnitude of each token in the queries and the keys'
        return sheet(self.scene, panels, title, NOTE, 4, LABEL)[0]

"""What a user chooses: layers, heads and a point; errors that say what there is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from mmbixt.backbones.base import DenseBackbone
from mmbixt.visualization.attention.drawing import Scene

Heads = str | int  # 'mean', 'each', or the number of one


class AttentionPictureError(ValueError):
    """What is asked for is not there."""


class Head(NamedTuple):
    """A head of an attention layer, or the mean of all of them.

    Attributes:
        number: from 0; None for the mean.
        count: heads of the layer.
    """

    number: int | None
    count: int

    def __str__(self) -> str:
        if self.number is None:
            return 'its one head' if self.count == 1 else f'mean of {self.count} heads'
        return f'head {self.number}'

    @property
    def suffix(self) -> str:
        """Of a file's name."""
        return '' if self.number is None else f'_head_{self.number:02d}'

    def of(self, maps: Tensor) -> Tensor:
        """Of all heads' maps (h,...) this one's."""
        return maps.mean(0) if self.number is None else maps[self.number]


@dataclass(frozen=True)
class Request:
    """What to draw.

    Attributes:
        backbone: one of ours.
        inputs: the preprocessed image (1,3,H,W).
        scene: the image as it is drawn.
        layers: names of layers, or None for the family's choice.
        heads: 'mean', 'each', the number of one, or None for what suits each picture.
        point: (x, y) in pixels of the inputs.
    """

    backbone: DenseBackbone
    inputs: Tensor
    scene: Scene
    layers: Sequence[str] | None
    heads: Heads | None
    point: tuple[float, float]

    def record(self, layers: Mapping[str, nn.Module]) -> dict[str, tuple]:
        """What goes into layers in a forward pass of the backbone, by their names."""
        return self.backbone.record(self.inputs, layers, lambda name, layer, inputs: inputs)

    def choose_layers(
        self, there: Mapping[str, nn.Module], default: Sequence[str]
    ) -> dict[str, nn.Module]:
        """The layers asked for, in the order of the network.

        Args:
            there: all layers by their names. A name with a dot is one of a stage's, and the stage
                alone means all of its layers.
            default: names of the family's choice.
        """
        wanted = default if self.layers is None else self.layers
        if 'all' in wanted:
            return dict(there)
        for name in wanted:
            if not any(_is_named(layer, name) for layer in there):
                family = type(self.backbone).__name__
                raise AttentionPictureError(
                    f'There is no layer {name}. This {family} has {", ".join(there)}.'
                )
        return {
            layer: module
            for layer, module in there.items()
            if any(_is_named(layer, name) for name in wanted)
        }

    def choose_heads(self, layer: str, count: int, default: Heads) -> list['Head']:
        """The heads asked for of a layer that has so many."""
        heads = default if self.heads is None else self.heads
        if heads == 'mean':
            return [Head(None, count)]
        if heads == 'each':
            return [Head(i, count) for i in range(count)]
        if not 0 <= heads < count:
            raise AttentionPictureError(
                f'There is no head {heads} in layer {layer}, which has heads 0 to {count - 1}. '
                "'mean' and 'each' are there in all layers."
            )
        return [Head(heads, count)]

    def cell(self, grid: tuple[int, int], stride: int) -> tuple[int, int]:
        """Row and column of the point in a map whose cells are some pixels apart."""
        x, y = self.point
        return min(int(y // stride), grid[0] - 1), min(int(x // stride), grid[1] - 1)


def _is_named(layer: str, name: str) -> bool:
    return name in (layer, layer.split('.')[0])


def check_point(point: tuple[float, float], width: int, height: int) -> None:
    if not (0 <= point[0] < width and 0 <= point[1] < height):
        raise AttentionPictureError(
            f'The point {point[0]:g} {point[1]:g} is outside the image, which has x from 0 to '
            f'{width - 1} and y from 0 to {height - 1}.'
        )

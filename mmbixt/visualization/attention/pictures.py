"""Base class of the pictures of all families: choice of layers and heads, a forward pass."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones.base import DenseBackbone
from mmbixt.visualization.attention.drawing import Panel, Scene


class AttentionPictureError(ValueError):
    """A layer, a head or a point that the model or the image does not have."""


class Layer(NamedTuple):
    """An attention layer in a forward pass."""

    name: str  # '7', or '2.5' in backbones with stages
    module: nn.Module
    inputs: tuple  # arguments of its forward
    stride: int  # pixels of the image from one cell of its feature map to the next
    grid: tuple[int, int]  # (H',W') of its feature map


@dataclass
class Pictures(ABC):
    """The pictures of a backbone of one family."""

    backbone: DenseBackbone
    inputs: Tensor  # the preprocessed image (1,3,H,W)
    scene: Scene
    heads: str | int | None = None  # 'mean', 'each' or a number; None: depends on the picture

    @staticmethod
    @abstractmethod
    def attention_layers(backbone: DenseBackbone) -> dict[str, nn.Module]:
        """Attention layers by name, in the order of the network."""

    @abstractmethod
    def stride(self, layer: str) -> int:
        """Pixels from one cell of a layer's feature map to the next."""

    @abstractmethod
    def draw(self, layer: Layer) -> Iterator[tuple[str, Figure]]:
        """The pictures of a layer, each with the last part of its file name."""

    @abstractmethod
    def summary(self) -> Figure:
        """One picture of the whole network."""

    def default_layers(self) -> list[str]:
        return [str(i) for i in self.backbone.out_indices]

    def figures(self, layers: Sequence[str] | None) -> Iterator[tuple[str, Figure]]:
        """File names and pictures of the chosen layers."""
        for layer in self.record(self.choose_layers(layers)):
            for kind, figure in self.draw(layer):
                yield f'layer_{layer.name:0>2}_{kind}', figure

    def choose_layers(self, wanted: Sequence[str] | None) -> list[str]:
        """Full names of the wanted layers; a stage ('2') stands for all of its layers."""
        existing = list(self.attention_layers(self.backbone))
        wanted = self.default_layers() if wanted is None else wanted
        names = {layer: {layer, layer.split('.')[0], 'all'} for layer in existing}
        if unknown := {*wanted}.difference(*names.values()):
            raise AttentionPictureError(
                f'There is no layer {min(unknown)}. This {type(self.backbone).__name__} has '
                f'{", ".join(existing)}.'
            )
        return [layer for layer in existing if names[layer] & {*wanted}]

    def choose_heads(self, layer: Layer, count: int, default: str) -> dict[str, slice]:
        """Slices of a layer's heads by caption; the mean over a slice is drawn."""
        wanted = default if self.heads is None else self.heads
        if wanted == 'mean':
            return {'mean of heads': slice(None)}
        if wanted != 'each' and wanted not in range(count):
            raise AttentionPictureError(
                f'There is no head {wanted} in layer {layer.name}, which has heads 0 to '
                f"{count - 1}. 'mean' and 'each' work for all layers."
            )
        chosen = range(count) if wanted == 'each' else [wanted]
        return {f'head {i}': slice(i, i + 1) for i in chosen}

    def panels(self, layer: Layer, maps: Mapping[str, Tensor], default: str) -> list[Panel]:
        """A panel for each kind of heat maps (h,H',W') of a layer and each slice of heads."""
        return [
            Panel(f'layer {layer.name}, {kind}, {caption}', one[heads].mean(0), layer.stride)
            for kind, one in maps.items()
            for caption, heads in self.choose_heads(layer, len(one), default).items()
        ]

    def record(self, names: Sequence[str]) -> list[Layer]:
        """Layers with their inputs, recorded in a forward pass of the backbone."""

        def read(name: str, module: nn.Module, inputs: tuple) -> Layer:
            stride = self.stride(name)
            grid = tuple(-(-side // stride) for side in self.inputs.shape[2:])
            return Layer(name, module, inputs, stride, grid)

        layers = self.attention_layers(self.backbone)
        chosen = {name: layers[name] for name in names}
        return list(self.backbone.record(self.inputs, chosen, read).values())


def check_point(point: tuple[float, float], width: int, height: int) -> None:
    if not (0 <= point[0] < width and 0 <= point[1] < height):
        raise AttentionPictureError(
            f'The point {point[0]:g} {point[1]:g} is outside the image, which has x from 0 to '
            f'{width - 1} and y from 0 to {height - 1}.'
        )

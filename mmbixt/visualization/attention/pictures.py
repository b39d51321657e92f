"""What the pictures of all families share: the choice of layers and heads, a forward pass."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones.base import DenseBackbone
from mmbixt.visualization.attention.drawing import Panel, Scene

Heads = str | int  # 'mean', 'each', or the number of one


class AttentionPictureError(ValueError):
    """A layer, a head or a point that the model or the image does not have."""


class Layer(NamedTuple):
    """An attention layer in a forward pass.

    Attributes:
        name: '7', or '2.5' in backbones with stages.
        module: the layer.
        inputs: what went into it.
        stride: pixels of the image from one cell of its feature map to the next.
        grid: (H',W') of its feature map.
    """

    name: str
    module: nn.Module
    inputs: tuple
    stride: int
    grid: tuple[int, int]

    def panels(self, maps: Mapping[str, Tensor], heads: Mapping[str, slice]) -> list[Panel]:
        """A panel for each kind of maps (h,H',W') and each choice of heads."""
        return [
            Panel(f'{kind}, {caption}', one[chosen].mean(0), self.stride)
            for kind, one in maps.items()
            for caption, chosen in heads.items()
        ]


class Pictures(ABC):
    """The pictures of a backbone of one family.

    Args:
        backbone: one of ours.
        inputs: the preprocessed image (1,3,H,W).
        scene: the image as it is drawn.
        heads: 'mean', 'each', the number of one, or None for what suits each picture.
    """

    def __init__(
        self, backbone: DenseBackbone, inputs: Tensor, scene: Scene, heads: Heads | None = None
    ) -> None:
        self.backbone = backbone
        self.inputs = inputs
        self.scene = scene
        self.heads = heads

    @staticmethod
    @abstractmethod
    def attention_layers(backbone: DenseBackbone) -> dict[str, nn.Module]:
        """By name, in the order of the network."""

    @abstractmethod
    def stride(self, layer: str) -> int:
        """Pixels from one cell of a layer's feature map to the next."""

    @abstractmethod
    def figures(self, layer: Layer) -> dict[str, Callable[[], Figure]]:
        """By file name, without the layer; each is drawn when it is called."""

    @abstractmethod
    def summary(self) -> Figure:
        """One picture for the whole network."""

    def default_layers(self) -> list[str]:
        return [str(i) for i in self.backbone.out_indices]

    def num_heads(self, layer: nn.Module) -> int:
        return layer.num_heads

    def plan(self, layers: Sequence[str] | None) -> dict[str, Callable[[], Figure]]:
        """All figures of the layers asked for, by file name."""
        return {
            f'layer_{layer.name:0>2}_{kind}': torch.no_grad()(draw)
            for layer in self.record(self.choose_layers(layers))
            for kind, draw in self.figures(layer).items()
        }

    def choose_layers(self, wanted: Sequence[str] | None) -> list[str]:
        """Names of the layers asked for. A stage alone ('2') means all of its layers."""
        there = list(self.attention_layers(self.backbone))
        wanted = self.default_layers() if wanted is None else wanted
        if 'all' in wanted:
            return there
        names = {layer: {layer, layer.split('.')[0]} for layer in there}
        if unknown := {*wanted}.difference(*names.values()):
            raise AttentionPictureError(
                f'There is no layer {min(unknown)}. This {type(self.backbone).__name__} has '
                f'{", ".join(there)}.'
            )
        return [layer for layer in there if names[layer] & {*wanted}]

    def choose_heads(self, layer: Layer, default: Heads) -> dict[str, slice]:
        """Slices of the heads by caption; the mean of the maps in a slice is drawn."""
        count = self.num_heads(layer.module)
        wanted = default if self.heads is None else self.heads
        if wanted == 'mean':
            return {f'mean of {count} heads' if count > 1 else 'its one head': slice(None)}
        each = {f'head {i}': slice(i, i + 1) for i in range(count)}
        if wanted == 'each':
            return each
        if f'head {wanted}' not in each:
            raise AttentionPictureError(
                f'There is no head {wanted} in layer {layer.name}, which has heads 0 to '
                f"{count - 1}. 'mean' and 'each' are there in all layers."
            )
        return {f'head {wanted}': slice(wanted, wanted + 1)}

    def record(self, names: Sequence[str]) -> list[Layer]:
        """Layers with their inputs in a forward pass of the backbone."""
        there = self.attention_layers(self.backbone)
        chosen = {name: there[name] for name in names}
        inputs = self.backbone.record(self.inputs, chosen, lambda name, layer, inputs: inputs)
        layers = []
        for name, module in chosen.items():
            stride = self.stride(name)
            grid = tuple(-(-side // stride) for side in self.inputs.shape[2:])
            layers.append(Layer(name, module, inputs[name], stride, grid))
        return layers


def check_point(point: tuple[float, float], width: int, height: int) -> None:
    if not (0 <= point[0] < width and 0 <= point[1] < height):
        raise AttentionPictureError(
            f'The point {point[0]:g} {point[1]:g} is outside the image, which has x from 0 to '
            f'{width - 1} and y from 0 to {height - 1}.'
        )

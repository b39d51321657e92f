"""Backbones with stages, BiFormer and BiSA-Swin: what the token at a point attends to."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones import BiFormer, BiSASwin
from mmbixt.visualization.attention.drawing import IMAGE, Panel, mark_point, outline, sheet
from mmbixt.visualization.attention.pictures import Layer, Pictures

Box = tuple[int, int, int, int]  # row, column, height, width in cells


class PointMaps(NamedTuple):
    """What the token at a point attends to.

    Attributes:
        maps: by kind of attention (h,H',W'): a multiple of an even spread over the tokens that the
            point may attend to; NaN elsewhere.
        own: the region or window of the point; None where the image is not divided.
        routed: the regions that the point's region is routed to, the best first.
    """

    maps: dict[str, Tensor]
    own: Box | None
    routed: Sequence[Box] = ()


class StagePictures(Pictures):
    family: str  # in titles
    enlarged = False  # whether panels show the region or window of the point alone

    @abstractmethod
    def point_maps(self, layer: Layer, cell: tuple[int, int]) -> PointMaps:
        """Maps of the token in a cell (row, column) of the feature map."""

    @abstractmethod
    def note(self, found: Sequence[PointMaps]) -> str:
        """How to read the pictures of the point."""

    @staticmethod
    def attention_layers(backbone: BiFormer | BiSASwin) -> dict[str, nn.Module]:
        """By stage and block, such as '2.7'."""
        return {
            f'{i}.{j}': block.attn
            for i, stage in enumerate(backbone.stages)
            for j, block in enumerate(getattr(stage, 'blocks', stage))
        }

    def default_layers(self) -> list[str]:
        """The last layer of each stage."""
        last = {name.split('.')[0]: name for name in self.attention_layers(self.backbone)}
        return list(last.values())

    def stride(self, layer: str) -> int:
        return 4 * 2 ** int(layer.split('.')[0])

    def point_figure(self, layer: Layer, heads: Mapping[str, slice]) -> Figure:
        """The image with the point and its regions, then a heat map for each kind and head."""
        found = self._of_point(layer)
        panels = [IMAGE, *layer.panels(found.maps, heads)]
        title = f'{self.family}, layer {layer.name}: what the marked point attends to'
        width = 5.0 if len(panels) == 2 else 3.4
        figure, axes = sheet(self.scene, panels, title, self.note([found]), 4, width)
        self._mark(axes[0], found, layer.stride, numbers=True)
        for ax in axes[1:]:
            self._mark(ax, found, layer.stride)
            if self.enlarged:
                top, left, height, width = (side * layer.stride for side in found.own)
                ax.set(xlim=(left, left + width), ylim=(top + height, top))
        return figure

    def point_summary(self) -> Figure:
        """The last layer of each stage, the mean over the heads."""
        layers = self.record(StagePictures.default_layers(self))
        found = [self._of_point(layer) for layer in layers]
        panels = [
            Panel(f'layer {layer.name}', next(iter(one.maps.values())).mean(0), layer.stride)
            for layer, one in zip(layers, found, strict=True)
        ]
        title = f'{self.family}: what the marked point attends to, in the last layer of each stage'
        note = f'mean over the heads · {self.note(found)}'
        columns = -(-len(panels) // 2)
        figure, axes = sheet(self.scene, panels, title, note, columns, 4.0, own_scales=True)
        for ax, layer, one in zip(axes, layers, found, strict=True):
            self._mark(ax, one, layer.stride)
        return figure

    def _of_point(self, layer: Layer) -> PointMaps:
        x, y = (int(side // layer.stride) for side in self.scene.point)
        return self.point_maps(layer, (min(y, layer.grid[0] - 1), min(x, layer.grid[1] - 1)))

    def _mark(self, ax: Axes, found: PointMaps, stride: int, numbers: bool = False) -> None:
        for rank, box in enumerate(found.routed, start=1):
            outline(ax, box, stride, 'yellow', str(rank) if numbers else '')
        if found.own is not None:
            outline(ax, found.own, stride, 'cyan')
        mark_point(ax, self.scene)

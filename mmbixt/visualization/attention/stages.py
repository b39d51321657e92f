"""Backbones with stages, BiFormer and BiSA-Swin: the attention of the token at a point."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.backbones import BiFormer, BiSASwin
from mmbixt.visualization.attention.drawing import IMAGE, mark_point, outline, sheet
from mmbixt.visualization.attention.pictures import Layer, Pictures

Box = tuple[int, int, int, int]  # row, column, height, width in cells


class PointMaps(NamedTuple):
    """The attention of the token at a point."""

    # by kind of attention (h,H',W'): attention times the number of tokens that the point may attend
    # to, so that uniform attention is 1; NaN for other tokens
    maps: dict[str, Tensor]
    own: Box | None  # the region or window of the point; None for full attention
    # the k routed regions of the point's region, the best first; empty for windows and for full
    # attention
    routed: Sequence[Box] = ()


class StagePictures(Pictures):
    point_note: str  # how to read the pictures of a point

    @staticmethod
    @abstractmethod
    def point_maps(layer: Layer, cell: tuple[int, int]) -> PointMaps:
        """Attention of the token in a cell (row, column) of the feature map."""

    @staticmethod
    def attention_layers(backbone: BiFormer | BiSASwin) -> dict[str, nn.Module]:
        """Attention layers by stage and block, such as '2.7'."""
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

    def point_figure(self, layers: Sequence[Layer]) -> Figure:
        """For each layer the image and its heat maps, with the point and its regions or window."""
        panels, marks = [], []
        for layer in layers:
            x, y = (int(side // layer.stride) for side in self.scene.point)
            found = self.point_maps(layer, (y, x))
            added = [IMAGE, *self.panels(layer, found.maps, 'mean')]
            panels += added
            marks += [(found, layer.stride)] * len(added)
        title = f'{type(self.backbone).__name__}: what the marked point attends to'
        figure, axes = sheet(self.scene, panels, title, self.point_note, columns=4)
        for ax, panel, (found, stride) in zip(axes, panels, marks, strict=True):
            for rank, box in enumerate(found.routed, start=1):
                outline(ax, box, stride, 'yellow', str(rank) if panel is IMAGE else '')
            if found.own is not None:
                outline(ax, found.own, stride, 'cyan')
                if not found.routed and panel is not IMAGE:  # a window is small: enlarge it
                    top, left, height, width = (side * stride for side in found.own)
                    ax.set(xlim=(left, left + width), ylim=(top + height, top))
            mark_point(ax, self.scene)
        return figure

    def summary(self) -> Figure:
        """The attention of a point in the last layer of each stage, mean over the heads."""
        return self.point_figure(self.record(self.default_layers()))

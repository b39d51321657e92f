"""A feature pyramid from a network of one stride, as of ``mmbixt.FeaturePyramidAdapter``."""

from collections.abc import Sequence

from timm.models import FeatureInfo
from torch import Tensor, nn

from mmbixt.backbones.arch import resolve_out_indices
from mmbixt.layers import make_resampler
from mmbixt.timm.classifier import Classifier, take_indices

STRIDES = (4, 8, 16, 32)


class Pyramid(nn.Module):
    """Feature maps of strides 4, 8, 16, 32 from layers after a third, a half, two thirds, and all.

    Those of a model of one stride are upsampled by transposed convolutions, whose weights are
    random, or max-pooled. ``out_indices`` are levels of the pyramid; an int: the last so many.
    """

    def __init__(self, model: Classifier, out_indices: int | Sequence[int] = (0, 1, 2, 3)) -> None:
        super().__init__()
        levels = take_indices(out_indices, len(STRIDES))
        layers = resolve_out_indices(None, len(model.feature_info))
        info = [
            dict(model.feature_info[layer], reduction=stride)
            for layer, stride in zip(layers, STRIDES, strict=True)
        ]
        self.feature_info = FeatureInfo(info, tuple(levels))
        in_stride = model.feature_info[0]['reduction']
        self.out_indices = model.prune_intermediate_layers([layers[i] for i in levels], True)
        self.model = model
        weight = next(model.parameters())
        for i in levels:
            resampler = make_resampler(model.num_features, in_stride, STRIDES[i], nn.BatchNorm2d)
            self.add_module(f'fpn{i + 1}', resampler.to(weight.device, weight.dtype))
        self.levels = levels

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images (B,3,H,W) to feature maps (B,C,H/stride,W/stride)."""
        maps = self.model.forward_intermediates(x, self.out_indices, intermediates_only=True)
        pairs = zip(self.levels, maps, strict=True)
        return [getattr(self, f'fpn{i + 1}')(y) for i, y in pairs]

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.model.set_grad_checkpointing(enable)

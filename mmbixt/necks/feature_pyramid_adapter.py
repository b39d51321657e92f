"""A feature pyramid from feature maps of one stride, as in XCiT's dense code."""

from collections.abc import Sequence
from typing import Any

from mmcv.cnn import build_norm_layer
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmbixt.layers import as_output, make_resampler
from mmbixt.registry import MODELS


@MODELS.register_module()
class FeaturePyramidAdapter(BaseModule):
    """Resample feature map ``i`` of a columnar backbone (all of one stride) to level ``i``.

    A neck of the framework follows: ``neck=[dict(type='mmbixt.FeaturePyramidAdapter', ...),
    dict(type='FPN', ...)]``, in mmseg and in mmdet.

    Args:
        in_channels: channels of all feature maps.
        in_strides: stride of all feature maps, a power of two.
        out_strides: stride of each level, a power of two; one for each feature map.
        norm_cfg: norm between two upsamplings; SyncBN for training on several GPUs.
        init_cfg: mmengine's initialisation.
    """

    def __init__(
        self,
        in_channels: int,
        in_strides: int,
        out_strides: Sequence[int] = (4, 8, 16, 32),
        norm_cfg: dict = dict(type='BN'),  # noqa: B006 (mm configs are copied, not changed)
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.out_strides = tuple(out_strides)
        for stride in (in_strides, *out_strides):
            if stride & (stride - 1):
                raise ValueError(f'Strides must be powers of two; {stride} is not.')

        def make_norm(channels: int) -> nn.Module:
            return build_norm_layer(norm_cfg, channels)[1]

        for i, stride in enumerate(out_strides):
            resampler = make_resampler(in_channels, in_strides, stride, make_norm)
            self.add_module(f'fpn{i + 1}', resampler)  # the name of XCiT's checkpoints
        self.register_load_state_dict_pre_hook(_accept_first_of_several)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Feature maps (B,C_i,H_i,W_i) to levels (B,C_i,H'_i,W'_i) of the pyramid.

        Latents (B,M,C) of BiXT, which follow the feature maps, remain as they are.
        """
        feature_maps = [x for x in inputs if x.ndim == 4]
        levels = (getattr(self, f'fpn{i + 1}')(as_output(x)) for i, x in enumerate(feature_maps))
        return (*levels, *inputs[len(feature_maps) :])


def _accept_first_of_several(
    adapter: FeaturePyramidAdapter, state_dict: dict[str, Tensor], prefix: str, *_: Any
) -> None:
    """Rename weights of ``neck=[adapter, ...]`` if the adapter is the whole neck."""
    for key in [key for key in state_dict if key.startswith(f'{prefix}0.fpn')]:
        state_dict[prefix + key.removeprefix(f'{prefix}0.')] = state_dict.pop(key)

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
        in_channels: channels of each feature map, or an int for all.
        in_strides: stride of each feature map, a power of two, or an int for all.
        out_strides: stride of each level, a power of two; one for each feature map.
        norm_cfg: norm between two upsamplings; SyncBN for training on several GPUs.
        init_cfg: mmengine's initialisation.

    Attributes:
        out_channels: channels of each level.
        out_strides: stride of each level.
    """

    def __init__(
        self,
        in_channels: int | Sequence[int],
        in_strides: int | Sequence[int],
        out_strides: Sequence[int] = (4, 8, 16, 32),
        norm_cfg: dict = dict(type='BN'),  # noqa: B006 (mm configs are copied, not changed)
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        levels = len(out_strides)
        self.out_strides = tuple(out_strides)
        self.out_channels = _per_level('in_channels', in_channels, levels)
        in_strides = _per_level('in_strides', in_strides, levels)
        for stride in (*in_strides, *self.out_strides):
            if not isinstance(stride, int) or stride < 1 or stride & (stride - 1):
                raise ValueError(
                    f'in_strides={in_strides} and out_strides={self.out_strides} must be powers of '
                    f'two; {stride} is not.'
                )

        def make_norm(channels: int) -> nn.Module:
            return build_norm_layer(norm_cfg, channels)[1]

        for i, (channels, in_stride) in enumerate(zip(self.out_channels, in_strides, strict=True)):
            resampler = make_resampler(channels, in_stride, out_strides[i], make_norm)
            self.add_module(f'fpn{i + 1}', resampler)  # the name of XCiT's checkpoints
        self.register_load_state_dict_pre_hook(_accept_first_of_several)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Feature maps (B,C_i,H_i,W_i) to levels (B,C_i,H'_i,W'_i) of the pyramid."""
        resamplers = (getattr(self, f'fpn{i + 1}') for i in range(len(self.out_strides)))
        return tuple(
            # a level is no alias of the feature map
            as_output(x) if isinstance(resample, nn.Identity) else resample(x.contiguous())
            for resample, x in zip(resamplers, inputs, strict=True)
        )


def _accept_first_of_several(
    adapter: FeaturePyramidAdapter, state_dict: dict[str, Tensor], prefix: str, *_: Any
) -> None:
    """Rename weights of ``neck=[adapter, ...]`` if the adapter is the whole neck."""
    for key in [key for key in state_dict if key.startswith(f'{prefix}0.fpn')]:
        state_dict[prefix + key.removeprefix(f'{prefix}0.')] = state_dict.pop(key)


def _per_level(name: str, value: int | Sequence[int], levels: int) -> tuple[int, ...]:
    values = (value,) * levels if isinstance(value, int) else tuple(value)
    if len(values) != levels:
        raise ValueError(
            f'{name}={values} has {len(values)} entries for {levels} levels (out_strides); give '
            'one per level, or one int for all.'
        )
    return values

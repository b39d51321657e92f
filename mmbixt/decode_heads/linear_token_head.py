"""A decode head of a single linear layer on tokens."""

from collections.abc import Sequence
from typing import Any

from mmcv.cnn import build_norm_layer
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor, nn

from mmbixt.layers import map_to_tokens, tokens_to_map
from mmbixt.registry import MODELS


@MODELS.register_module()
class LinearTokenHead(BaseDecodeHead):
    """Classify each token with one linear layer; mmseg upsamples the logits bilinearly.

    Args:
        in_channels: channels C of a feature map; with a sequence, several feature maps are resized
            to the first one and concatenated.
        num_classes: number of classes.
        channels: for compatibility with mmseg's other heads; must be the sum of ``in_channels``.
        in_index: index of the feature map, by default the last; a sequence if ``in_channels`` is
            one (by default the last ones).
        norm_cfg: a norm of the tokens before the linear layer, for example
            ``dict(type='LN', eps=1e-6)`` or ``dict(type='SyncBN')``; None for no norm.
        dropout_ratio: dropout of whole channels before the linear layer.
        kwargs: arguments of mmseg's ``BaseDecodeHead``: ``loss_decode``, ``ignore_index`` ...
    """

    def __init__(
        self,
        in_channels: int | Sequence[int],
        num_classes: int,
        channels: int | None = None,
        in_index: int | Sequence[int] | None = None,
        norm_cfg: dict | None = None,
        dropout_ratio: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if isinstance(in_channels, int):
            width, select = in_channels, None
            in_index = -1 if in_index is None else in_index
        else:
            width, select = sum(in_channels), 'resize_concat'
            in_index = range(-len(in_channels), 0) if in_index is None else in_index
        if select:
            in_channels, in_index = list(in_channels), list(in_index)
        if channels not in (None, width):
            raise ValueError(
                f'LinearTokenHead has no hidden layer: channels={channels} must be omitted, or be '
                f'the {width} of in_channels.'
            )
        super().__init__(
            in_channels=in_channels,
            channels=width,
            num_classes=num_classes,
            in_index=in_index,
            input_transform=select,
            norm_cfg=norm_cfg,
            dropout_ratio=dropout_ratio,
            **kwargs,
        )
        # before conv_seg, because mmcv.cnn.fuse_conv_bn would otherwise fuse the two
        conv_seg = self.conv_seg
        del self.conv_seg
        self.norm = build_norm_layer(norm_cfg, width)[1] if norm_cfg else nn.Identity()
        self.conv_seg = conv_seg

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Feature maps (B,C_i,H_i,W_i) to logits (B,num_classes,H,W), at the first resolution."""
        x = self._transform_inputs(inputs)
        if isinstance(self.norm, nn.LayerNorm):  # over the channels of each token
            x = tokens_to_map(self.norm(map_to_tokens(x)), x.shape[-2:])
        else:
            x = self.norm(x)
        return self.cls_seg(x)

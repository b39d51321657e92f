"""A decode head of a single linear layer on tokens."""

from collections.abc import Sequence
from typing import Any

from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor

from mmbixt.registry import MODELS


@MODELS.register_module()
class LinearTokenHead(BaseDecodeHead):
    """Classify each token with one linear layer; mmseg upsamples the logits bilinearly.

    Args:
        in_channels: channels C of the feature map.
        num_classes: number of classes.
        dropout_ratio: dropout of whole channels before the linear layer.
        kwargs: arguments of mmseg's ``BaseDecodeHead``: ``in_index`` (default: the last feature
            map), ``loss_decode``, ``ignore_index`` ...
    """

    def __init__(
        self, in_channels: int, num_classes: int, dropout_ratio: float = 0.0, **kwargs: Any
    ) -> None:
        sizes = dict(in_channels=in_channels, channels=in_channels, num_classes=num_classes)
        super().__init__(**sizes, dropout_ratio=dropout_ratio, **kwargs)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Feature maps (B,C_i,H_i,W_i) to logits (B,num_classes,H,W) of one of them."""
        return self.cls_seg(self._transform_inputs(inputs))

"""The masks of BiXT's latents as a decode head of mmseg."""

from collections.abc import Sequence
from typing import Any

from mmseg.models.decode_heads import MaskFormerHead
from torch import Tensor

from mmbixt.registry import MODELS
from projects.latent_masks.latent_mask_head import LatentMaskHead


@MODELS.register_module()
class SemanticLatentMaskHead(LatentMaskHead, MaskFormerHead):
    """:class:`LatentMaskHead` with the loss and the prediction of mmseg's ``MaskFormerHead``.

    A pixel's score of a class is the sum over the latents of the class's probability times the
    mask's.

    Args:
        num_classes: number of classes.
        ignore_index: label of pixels that do not count.
        align_corners: for compatibility with mmseg's other heads.
        options: arguments of :class:`LatentMaskHead`.
    """

    def __init__(
        self,
        num_classes: int,
        ignore_index: int = 255,
        align_corners: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(num_things_classes=num_classes, num_stuff_classes=0, **options)
        self.ignore_index = ignore_index
        self.align_corners = align_corners
        self.out_channels = num_classes

    def predict(
        self, x: Sequence[Tensor], batch_img_metas: Sequence[dict], test_cfg: dict
    ) -> Tensor:
        """Scores (B,num_classes,H,W) of images, with the padding that mmseg cuts off afterwards."""
        if test_cfg.get('mode') != 'slide':  # crops have no padding of their own
            batch_img_metas = [
                {**meta, 'img_shape': meta['pad_shape']} if 'img_padding_size' in meta else meta
                for meta in batch_img_metas
            ]
        return super().predict(x, batch_img_metas, test_cfg)

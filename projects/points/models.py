"""A classifier of shapes and a segmentor of their parts, for mmengine's runner."""

import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn

from mmbixt.registry import MODELS


@MODELS.register_module()
class PointClassifier(BaseModel):
    """The mean of the latents, a norm and a linear layer.

    Args:
        backbone: config of a :class:`PointBiXT`.
        num_classes: number of classes.
        label_smoothing: of the cross-entropy.
        init_cfg: mmengine's initialisation.
    """

    def __init__(
        self,
        backbone: dict,
        num_classes: int,
        label_smoothing: float = 0.0,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        self.backbone = MODELS.build(backbone)
        self.norm = nn.LayerNorm(self.backbone.channels, eps=1e-6)
        self.head = nn.Linear(self.backbone.channels, num_classes)
        self.label_smoothing = label_smoothing

    def forward(
        self, points: Tensor, label: Tensor | None = None, mode: str = 'tensor'
    ) -> Tensor | dict[str, Tensor] | list[dict[str, Tensor]]:
        """Points (B,N,axes) and classes (B,) to logits (B,classes), in mode 'tensor'."""
        logits = self.head(self.norm(self.backbone(points).mean(dim=1)))
        if mode == 'loss':
            loss = F.cross_entropy(logits, label, label_smoothing=self.label_smoothing)
            return dict(loss=loss)
        if mode == 'predict':
            return [dict(scores=x, label=y) for x, y in zip(logits, label, strict=True)]
        return logits


@MODELS.register_module()
class PartSegmentor(BaseModel):
    """A linear layer on the tokens of all points.

    Args:
        backbone: config of a dense :class:`PointBiXT` with ``num_categories``.
        num_parts: number of the parts of all categories.
        init_cfg: mmengine's initialisation.
    """

    def __init__(self, backbone: dict, num_parts: int, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        self.backbone = MODELS.build(backbone)
        self.head = nn.Linear(self.backbone.channels, num_parts)

    def forward(
        self, points: Tensor, category: Tensor, parts: Tensor | None = None, mode: str = 'tensor'
    ) -> Tensor | dict[str, Tensor] | list[dict[str, Tensor]]:
        """Points (B,N,axes), categories (B,) and parts (B,N) to logits (B,N,parts)."""
        logits = self.head(self.backbone(points, category))
        if mode == 'loss':
            return dict(loss=F.cross_entropy(logits.flatten(0, 1), parts.flatten()))
        if mode == 'predict':
            shapes = zip(logits, category, parts, strict=True)
            return [dict(scores=x, category=y, parts=z) for x, y, z in shapes]
        return logits

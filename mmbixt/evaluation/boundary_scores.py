"""The boundary scores as a metric of torchmetrics, for training loops outside of OpenMMLab."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mmbixt.evaluation.boundary import RATIOS, WIDTHS, class_scores, image_sums, scores
from mmbixt.frameworks import IMPORT_ERRORS, missing_framework

try:
    from torchmetrics import Metric
except IMPORT_ERRORS as error:
    raise missing_framework('BoundaryScores', 'torchmetrics', error) from error


class BoundaryScores(Metric):
    """Scores near boundaries and over all pixels; `mmbixt.evaluation.boundary` describes them.

    Args:
        num_classes: classes K; labels are 0 to K - 1.
        per_class: also compute the scores (K,) of each class, such as ``band3px/IoU``.
        widths, ratios, tolerances, ignore_index: as for `image_sums`.
        kwargs: arguments of ``torchmetrics.Metric``.
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False

    def __init__(
        self,
        num_classes: int,
        per_class: bool = False,
        widths: Sequence[int | float] = WIDTHS,
        ratios: Sequence[float] = RATIOS,
        tolerances: Sequence[float] = (),
        ignore_index: int = 255,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.per_class = per_class
        self.options = num_classes, widths, ratios, tolerances, ignore_index
        nothing = np.full((1, 1), ignore_index)
        self.names = list(image_sums(nothing, nothing, *self.options))
        counts = torch.zeros(len(self.names), num_classes, dtype=torch.int64)
        self.add_state('counts', counts, dist_reduce_fx='sum')  # in the order of the names

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        """Count the pixels of label maps (B,H,W), or logits (B,K,H,W), and true labels (B,H,W)."""
        if preds.is_floating_point():
            num_classes = self.options[0]
            if preds.ndim != 4 or preds.shape[1] != num_classes:
                raise ValueError(f'logits must be (B,{num_classes},H,W), got {tuple(preds.shape)}')
            preds = preds.argmax(1)
        for truth, prediction in zip(target.cpu().numpy(), preds.cpu().numpy(), strict=True):
            sums = image_sums(truth, prediction, *self.options)
            self.counts += torch.from_numpy(np.stack(list(sums.values()))).to(self.counts.device)

    def compute(self) -> dict[str, torch.Tensor]:
        """Percentages by name, NaN where there is nothing to score."""
        sums = dict(zip(self.names, self.counts.cpu().numpy(), strict=True))
        found = scores(sums) | (class_scores(sums) if self.per_class else {})
        options = dict(dtype=torch.get_default_dtype(), device=self.counts.device)
        return {name: torch.as_tensor(value, **options) for name, value in found.items()}

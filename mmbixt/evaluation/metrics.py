"""The boundary metric of semantic segmentation, for mm configs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mmbixt.evaluation.boundary import RATIOS, WIDTHS, image_sums, main_band, scores
from mmbixt.evaluation.sums import ImageSums, write_sums
from mmbixt.registry import METRICS


@METRICS.register_module()
class BoundaryIoUMetric(BaseMetric):
    """Scores near boundaries and over all pixels, with mmseg's ``IoUMetric`` or instead of it.

    :mod:`mmbixt.evaluation.boundary` describes the scores and their names. The ``mIoU`` of
    ``IoUMetric`` is ``all/mIoU`` here, also for ``save_best``.

    Args:
        widths: widths of bands around the true boundaries, in pixels (int) or as fractions of the
            diagonal (float below 1).
        ratios: widths for Boundary IoU, as fractions of the diagonal.
        tolerances: for the boundary F score, in pixels.
        ignore_index: true label of pixels that do not count.
        sums_file: .npz file for the counts (N,K) of each image by name, with the names of the N
            ``images`` and K ``classes``; scores of any part of the data set follow from them.
        all_scores: return all scores; else ``all/mIoU``, mIoU and gap of one band, and the first of
            Boundary IoU and F, which fit a line of the log.
        kwargs: arguments of mmengine's ``BaseMetric``: ``prefix``, ``collect_device`` and
            ``collect_dir``.
    """

    default_prefix = ''  # with None mmengine would warn that there is none

    def __init__(
        self,
        widths: Sequence[int | float] = WIDTHS,
        ratios: Sequence[float] = RATIOS,
        tolerances: Sequence[float] = (),
        ignore_index: int = 255,
        sums_file: str | None = None,
        all_scores: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.all_scores = all_scores
        self.options = widths, ratios, tolerances, ignore_index
        self.sums_file = sums_file

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Count the pixels of label maps (1,H,W) ``['pred_sem_seg']['data']`` and
        ``['gt_sem_seg']['data']`` of each image."""
        for sample in data_samples:
            name = Path(sample.get('img_path', '')).name
            if 'gt_sem_seg' not in sample:
                raise ValueError(
                    f'{name} has no true labels: the test set has no annotation, or its pipeline '
                    'does not load it (LoadAnnotations)'
                )
            truth, prediction = (
                sample[key]['data'].cpu().numpy()[0] for key in ('gt_sem_seg', 'pred_sem_seg')
            )
            sums = image_sums(truth, prediction, len(self.dataset_meta['classes']), *self.options)
            self.results.append((name, sums))

    def compute_metrics(self, results: list[tuple[str, dict[str, np.ndarray]]]) -> dict[str, float]:
        """Scores of the data set; all others, also of each class, follow from ``sums_file``."""
        names, sums = zip(*results, strict=True)
        counted = ImageSums.stack(names, self.dataset_meta['classes'], sums)
        if self.sums_file is not None:
            write_sums(self.sums_file, counted)
            print_log(f'counts of every image are in {self.sums_file}', logger='current')
        found = scores(counted.total())
        if self.all_scores:
            return found
        band, contour = main_band(found), next((x for x in found if x.startswith('boundary')), None)
        line = 'all/mIoU', f'{band}/mIoU', f'{band}/gap', contour
        return {name: found[name] for name in line if name in found}

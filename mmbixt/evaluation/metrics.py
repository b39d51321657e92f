"""The boundary metric of semantic segmentation, for mm configs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from mmbixt.evaluation.boundary import RATIOS, WIDTHS, class_scores, image_sums, scores
from mmbixt.evaluation.sums import ImageSums, write_sums
from mmbixt.registry import METRICS


@METRICS.register_module()
class BoundaryIoUMetric(BaseMetric):
    """How good a segmentation is near boundaries, beside or instead of mmseg's ``IoUMetric``.

    :mod:`mmbixt.evaluation.boundary` describes the scores and their names. The ``mIoU`` of
    ``IoUMetric`` is ``all/mIoU`` here, also for ``save_best``.

    Args:
        widths: of bands around the true boundaries, in pixels (int) or as a share of the image's
            diagonal (float below 1).
        ratios: of Boundary IoU, shares of the diagonal.
        tolerances: of the boundary F score, in pixels. Takes longer than all the rest.
        ignore_index: true label of pixels that do not count.
        sums_file: .npz file for the counts of every image (N,K) by name, with the names of the N
            ``images`` and K ``classes``. Scores of any part of the data set follow from them.
        kwargs: of mmengine's ``BaseMetric``: ``prefix``, ``collect_device`` and ``collect_dir``.
    """

    def __init__(
        self,
        widths: Sequence[int | float] = WIDTHS,
        ratios: Sequence[float] = RATIOS,
        tolerances: Sequence[float] = (),
        ignore_index: int = 255,
        sums_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sums_file is not None and Path(sums_file).suffix != '.npz':
            raise ValueError(f'sums_file must end with .npz, got {sums_file}')
        self.options = dict(
            widths=widths, ratios=ratios, tolerances=tolerances, ignore_index=ignore_index
        )
        self.sums_file = sums_file

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Count the pixels of each image.

        Args:
            data_batch: not used.
            data_samples: label maps (1,H,W) ``['pred_sem_seg']['data']`` and
                ``['gt_sem_seg']['data']``.
        """
        for sample in data_samples:
            name = Path(sample.get('img_path', '')).name
            if 'gt_sem_seg' not in sample:
                raise ValueError(
                    f'{type(self).__name__} got no true labels of image {name!r}: the test set '
                    'has no annotation, or its pipeline does not load it'
                )
            truth, prediction = (
                sample[key]['data'].cpu().numpy()[0] for key in ('gt_sem_seg', 'pred_sem_seg')
            )
            sums = image_sums(truth, prediction, len(self.dataset_meta['classes']), **self.options)
            self.results.append(
                (name, {key: counts.astype(np.uint32) for key, counts in sums.items()})
            )

    def compute_metrics(self, results: list[tuple[str, dict[str, np.ndarray]]]) -> dict[str, float]:
        """Scores of the data set; of each class in the log."""
        names, sums = zip(*results, strict=True)
        counted = ImageSums.stack(names, self.dataset_meta['classes'], sums)
        if self.sums_file is not None:
            write_sums(self.sums_file, counted.images, counted.classes, counted.counts)
            print_log(f'counts of every image are in {self.sums_file}', logger='current')
        total = counted.total()
        table = class_table(counted.classes, class_scores(total))
        print_log(f'per class results:\n\n{table}', logger='current')
        return scores(total)


def class_table(classes: Sequence[str], columns: dict[str, np.ndarray]) -> str:
    """Text: a line for each class that occurs, a column for each score."""
    width = max(len(name) for name in ('class', *classes))
    lines = ['  '.join(('class'.ljust(width), *columns))]
    scored = ~np.isnan(list(columns.values())).all(0)
    for k in np.flatnonzero(scored):
        name = classes[k]
        cells = (f'{values[k]:.2f}'.rjust(len(title)) for title, values in columns.items())
        lines.append('  '.join((name.ljust(width), *cells)))
    return '\n'.join([*lines, *absent_classes(scored)])


def absent_classes(scored: np.ndarray) -> list[str]:
    """The last line of a table, if classes are missing in it; `scored` (K,): which are there."""
    if scored.all():
        return []
    return [f'({(~scored).sum()} of {len(scored)} classes are in neither truth nor prediction.)']

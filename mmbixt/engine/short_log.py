"""One line of scores after an evaluation, with few of those near boundaries.

It is not a component for configs, because it changes nothing but a line of the log.
"""

import re
from collections.abc import Iterable
from typing import Any

from mmengine.runner import LogProcessor

from mmbixt.evaluation.boundary import main_band

_NAME = re.compile(r'(all|band[\d.]+(px)?|boundaryF?[\d.]+(px)?)/\w+')  # of BoundaryIoUMetric


class ShortLogProcessor(LogProcessor):
    """mmengine's ``LogProcessor`` with few scores of ``BoundaryIoUMetric`` in the line of the log.

    The line has mIoU and gap of one band, one Boundary IoU, and mIoU of all pixels once. All scores
    go to the JSON files and to ``vis_backends``.
    """

    def get_log_after_epoch(self, *args: Any, **options: Any) -> tuple[dict, str]:
        scores, line = super().get_log_after_epoch(*args, **options)
        hidden = {name for name in scores if _NAME.fullmatch(name)} - main_scores(scores)
        parts = [part for part in line.split('  ') if part.partition(':')[0] not in hidden]
        return scores, '  '.join(parts)


def main_scores(names: Iterable[str]) -> set[str]:
    """The scores near boundaries, and the mIoU, that stand for all those in ``names``."""
    names = [*names]
    overall = 'mIoU' if 'mIoU' in names else 'all/mIoU'  # IoUMetric's, where there is one
    band, contour = main_band(names), next((x for x in names if x.startswith('boundary')), overall)
    return {overall, contour, *([f'{band}/mIoU', f'{band}/gap'] if band else ())}

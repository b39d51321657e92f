"""The lines of the log with few scores near boundaries."""

from collections.abc import Iterable
from typing import Any

from mmengine.runner import EpochBasedTrainLoop, LogProcessor, Runner

from mmbixt.evaluation.boundary import main_band
from mmbixt.registry import LOG_PROCESSORS

_NAMES = 'all/', 'band', 'boundary'  # what those of BoundaryIoUMetric begin with


@LOG_PROCESSORS.register_module()
class ShortLogProcessor(LogProcessor):
    """mmengine's ``LogProcessor`` with few scores of ``BoundaryIoUMetric`` in the line of the log.

    The line has mIoU and gap of one band, one Boundary IoU, and mIoU of all pixels once; the JSON
    files and ``vis_backends`` have all scores. After a resume within an epoch the log counts the
    steps from the beginning of the epoch.

    Example:
        >>> log_processor = dict(type='mmbixt.ShortLogProcessor', by_epoch=False)
    """

    def get_log_after_iter(self, runner: Runner, batch_idx: int, mode: str) -> tuple[dict, str]:
        if mode == 'train' and isinstance(runner.train_loop, EpochBasedTrainLoop):
            batch_idx = runner.iter % len(runner.train_dataloader)
        return super().get_log_after_iter(runner, batch_idx, mode)

    def get_log_after_epoch(self, *args: Any, **options: Any) -> tuple[dict, str]:
        scores, line = super().get_log_after_epoch(*args, **options)
        hidden = {name for name in scores if name.startswith(_NAMES)} - main_scores(scores)
        parts = [part for part in line.split('  ') if part.partition(':')[0] not in hidden]
        return scores, '  '.join(parts)


def main_scores(names: Iterable[str]) -> set[str]:
    """The scores of the line, chosen from ``names``."""
    names = [*names]
    overall = 'mIoU' if 'mIoU' in names else 'all/mIoU'  # IoUMetric's, where there is one
    band, contour = main_band(names), next((x for x in names if x.startswith('boundary')), overall)
    return {overall, contour, *([f'{band}/mIoU', f'{band}/gap'] if band else ())}

"""The files in the work dir of a run: config, logs and checkpoint."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config

from mmbixt.check.metrics import metrics_of
from mmbixt.checkpoints.written import written_checkpoints
from mmbixt.sample.sample_data import MANIFEST

# scores of mmdet, and what they measure
DETECTION = {'coco/bbox_mAP': 'boxes', 'coco/segm_mAP': 'masks', 'coco/boundary_mAP': 'mask edges'}
HIDDEN = {'time', 'data_time', 'step'}  # of a record, no scores
NO_LOSS = 'loss is not finite'  # in a record, in place of such a loss


class ReportError(ValueError):
    """A folder is not the work dir of a segmentor or a detector."""


class Run:
    """The content of the work dir of a run; options change its config, like ``--cfg-options``."""

    def __init__(self, folder: Path, options: Mapping | None = None) -> None:
        configs = sorted(folder.glob('*.py'), key=lambda path: path.stat().st_mtime)
        if not configs:
            what = f'{folder} is not the work dir of a run: there is no config {folder}/*.py.'
            raise ReportError(f'{what} Give the --work-dir of tools/train.py or tools/test.py.')
        starts = sorted(folder.glob('[0-9]' * 8 + '_' + '[0-9]' * 6))  # mmengine's: date and time
        logs = {start: read_records(start / 'vis_data/scalars.json') for start in starts}
        trained = [start for start in starts if logs[start][0]]  # tests write no records
        # a later test may have overwritten the config in the work dir with its own
        dumped = [file for start in trained if (file := start / 'vis_data/config.py').exists()]
        self.folder = folder
        self.name = configs[-1].stem
        self.config = Config.fromfile((dumped or configs)[-1])
        self.config.merge_from_dict(dict(options or {}))
        if self.config.get('default_scope') == 'mmpretrain':
            raise ReportError(f'{folder} is the work dir of a classifier, which has no report.')
        self.detects = self.config.get('default_scope') == 'mmdet'
        self.test_set = (self.config.get('test_dataloader') or {}).get('dataset', {})
        root = Path(self.test_set.get('data_root') or '')
        self.generated = any((part / MANIFEST).exists() for part in (root, *root.parents))
        last = (trained or starts)[-1:]
        self.date = datetime.strptime(last[0].name, '%Y%m%d_%H%M%S') if last else None
        self.records = merge(records for records, _ in logs.values())
        self.iterations = max((r['step'] for r in self.records), default=0)
        # mmengine writes the scores of a test to a separate file
        tests = [test for start in starts for test in read_records(start / f'{start.name}.json')[0]]
        means = {'mIoU', 'all/mIoU', *DETECTION}
        if self.detects:
            score_empty(self.records, self.config.get('val_evaluator'))
            score_empty(tests[-1:], Config.fromfile(configs[-1]).get('test_evaluator'))
        scored = [record for record in (*self.records, *tests[-1:]) if means & record.keys()]
        self.scores = {k: v for k, v in scored[-1].items() if k not in HIDDEN} if scored else {}
        self.notes = [
            f'{broken} of the lines of {start.name}/vis_data/scalars.json cannot be read (was the '
            'disk full, or the run killed while writing?) and are ignored.'
            for start, (_, broken) in logs.items()
            if broken
        ]
        self.lost = len(lost := self.curve(NO_LOSS))
        if self.lost:
            self.notes.append(
                f'{self.lost} of {self.lost + len(self.curve("loss"))} logged losses are NaN or '
                f'infinite, first at iteration {lost[0, 0]:.0f}. They are not in the curve.'
            )
        self.checkpoint = self._find_checkpoint()

    def _find_checkpoint(self) -> Path | None:
        """The last complete checkpoint of the run, or the tested one if the folder is of a test."""
        written = dict(written_checkpoints(self.folder, self.config))
        whole = [path for path, problem in written.items() if problem is None]
        if whole and whole[0] != next(iter(written)):
            damaged = ', '.join(path.name for path, problem in written.items() if problem)
            self.notes.append(f'{damaged}: empty or damaged. {whole[0].name} is used.')
        if written:
            return [*whole, *written][0]
        tested = self.config.get('load_from')
        return Path(tested) if tested and not self.iterations else None

    def curve(self, name: str) -> np.ndarray:
        """Logged steps and values (P,2) of a name."""
        pairs = [(record['step'], record[name]) for record in self.records if name in record]
        return np.array(pairs, float).reshape(-1, 2)


def score_empty(records: Iterable[dict], evaluator: Any) -> None:
    """Add the scores 0 to evaluations without any detection, of which mmdet logs only times."""
    means = []
    for _, name, metric in metrics_of(evaluator):
        kinds = metric.get('metric', 'bbox')
        if name in ('CocoMetric', 'BoundaryCocoMetric') and not metric.get('format_only'):
            means += [f'coco/{k}_mAP' for k in ([kinds] if isinstance(kinds, str) else kinds)]
            means += ['coco/boundary_mAP'] * (name == 'BoundaryCocoMetric')
    zeros = {name: 0.0 for name in DETECTION if name in means}
    for record in records if zeros else ():
        if 'time' in record and record.keys() <= HIDDEN:
            record.update(zeros, detections=0)


def read_records(file: Path) -> tuple[list[dict[str, float]], int]:
    """The records (numbers by name) of a log of mmengine, and the number of broken lines."""
    records, broken = [], 0
    for line in file.read_text(errors='replace').splitlines() if file.exists() else []:
        try:
            items = [item for item in json.loads(line).items() if isinstance(item[1], int | float)]
            record = {name: value for name, value in items if isfinite(value)}
            if not isfinite(dict(items).get('loss', 0)):
                record[NO_LOSS] = 1
            records.append(record)
        except (ValueError, AttributeError):  # not JSON; JSON, but not a record
            broken += 1
    return records, broken


def merge(starts: Iterable[Sequence[Mapping[str, float]]]) -> list[dict[str, float]]:
    """Merge the records of each start of a run, in order, to one history by iteration.

    Iterations that a resumed run repeated replace the earlier ones. Validations that are logged by
    epoch (mmengine's default), or at step 0, get the iteration of the training record before them.
    """
    history = []
    for records in starts:
        new, iteration = [], 0
        for record in records:
            if 'step' in record:
                trained = 'loss' in record or NO_LOSS in record
                iteration = record['step'] if trained else iteration
                new.append({**record, 'step': max(record['step'], iteration)})
        first = min((record['step'] for record in new), default=inf)
        history = [record for record in history if record['step'] < first] + new
    return sorted(history, key=lambda record: record['step'])

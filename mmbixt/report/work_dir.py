"""The files in the work dir of a run: config, logs and checkpoint."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from pathlib import Path

import numpy as np
from mmengine.config import Config

from mmbixt.errors import UserError
from mmbixt.scenes.files import MANIFEST

# scores of mmdet, and what they measure
DETECTION = {'coco/bbox_mAP': 'boxes', 'coco/segm_mAP': 'masks', 'coco/boundary_mAP': 'mask edges'}
# one of them is in each record of a validation or a test
_MEANS = {'mIoU', 'all/mIoU', 'accuracy/top1', *DETECTION}


class Run:
    """The content of the work dir of a run; options change its config, like ``--cfg-options``."""

    def __init__(self, folder: Path, options: Mapping | None = None) -> None:
        configs = sorted(folder.glob('*.py'), key=lambda path: path.stat().st_mtime)
        if not configs:
            raise UserError(f'{folder} is not the work dir of a run: it has no config')
        starts = starts_in(folder)
        logs = {start: read_records(start / 'vis_data/scalars.json') for start in starts}
        trained = [*filter(is_training, starts)]
        # a later test may have overwritten the config in the work dir with its own
        dumped = [file for start in trained if (file := start / 'vis_data/config.py').exists()]
        self.folder = folder
        self.name = configs[-1].stem
        self.config = Config.fromfile((dumped or configs)[-1])
        self.config.merge_from_dict(dict(options or {}))
        if self.config.get('default_scope') == 'mmpretrain':
            raise UserError(f'{folder} is the work dir of a classifier, which has no report')
        self.detects = self.config.get('default_scope') == 'mmdet'
        self.test_set = (self.config.get('test_dataloader') or {}).get('dataset', {})
        root = Path(self.test_set.get('data_root') or '')
        self.generated = any((part / MANIFEST).exists() for part in (root, *root.parents))
        last = (trained or starts)[-1:]
        self.date = datetime.strptime(last[0].name, '%Y%m%d_%H%M%S') if last else None
        self.records = merge(logs.values())
        self.iterations = max((r['step'] for r in self.records), default=0)
        self.scores = last_scores(folder)
        tested = self.config.get('load_from')
        self.checkpoint = last_checkpoint(folder)
        if not self.checkpoint and tested and not self.iterations:  # the folder is of a test
            self.checkpoint = Path(tested)

    def curve(self, name: str) -> np.ndarray:
        """Logged steps and finite values (P,2) of a name."""
        pairs = [(record['step'], record[name]) for record in self.records if name in record]
        points = np.array(pairs, float).reshape(-1, 2)
        return points[np.isfinite(points).all(1)]


def starts_in(folder: Path) -> list[Path]:
    """The folders of logs in a work dir, one for each start of a run or a test, in order."""
    return sorted(folder.glob('[0-9]' * 8 + '_' + '[0-9]' * 6))  # mmengine's: date and time


def last_scores(
    folder: Path, counts: Callable[[Path], bool] = lambda start: True
) -> dict[str, float]:
    """Scores of the last validation or test in a work dir; empty if there is none.

    ``counts`` says whether the training or test with a folder of logs is considered.
    """
    for start in reversed(starts_in(folder)):
        # mmengine writes the scores of a test to a separate file
        files = (start / 'vis_data/scalars.json', start / f'{start.name}.json')
        scored = [x for file in files for x in read_records(file) if _MEANS & x.keys()]
        if scored and counts(start):
            hidden = ('time', 'data_time', 'step')
            return {k: v for k, v in scored[-1].items() if k not in hidden}
    return {}


def is_training(start: Path) -> bool:
    """Whether a folder of logs is of a training: tests write no records."""
    return bool(read_records(start / 'vis_data/scalars.json'))


def last_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint of a run, or the best one."""
    note = folder / 'last_checkpoint'  # written by mmengine
    last = Path(note.read_text().strip()) if note.exists() else Path('none')
    best = sorted(folder.glob('best_*.pth'), key=lambda path: path.stat().st_mtime)
    # a work dir that was moved has a note with its former path
    places = (last, folder / last.name, *reversed(best))
    return next((path for path in places if path.is_file()), None)


def read_records(file: Path) -> list[dict[str, float]]:
    """The records (numbers by name) of a log of mmengine."""
    records = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # the run was killed while it wrote the line
            continue
        records.append({k: v for k, v in record.items() if isinstance(v, int | float)})
    return records


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
                iteration = record['step'] if 'loss' in record else iteration
                new.append({**record, 'step': max(record['step'], iteration)})
        first = min((record['step'] for record in new), default=inf)
        history = [record for record in history if record['step'] < first] + new
    return sorted(history, key=lambda record: record['step'])

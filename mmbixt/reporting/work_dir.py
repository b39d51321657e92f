"""What a run left in its work dir: configuration, records of training, checkpoint, counts."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mmengine.config import Config

from mmbixt.evaluation.sums import FILE_NAME
from mmbixt.sample.sample_data import MANIFEST


class WorkDirError(ValueError):
    """A folder is no work dir of a run."""


@dataclass(frozen=True)
class Run:
    """A run, as its work dir tells it.

    Attributes:
        folder: the work dir.
        name: of the config, without ``.py``.
        config: as mmengine wrote it when the run began.
        records: what was logged at a step (``step``, in iterations), of training and validation.
        results: scores of the last test, by name.
        date: when it began last; None if no log says so.
        unreadable: a sentence for each file with lines that are no records.
    """

    folder: Path
    name: str
    config: Config
    records: list[dict[str, float]]
    results: dict[str, float]
    date: datetime | None
    unreadable: list[str]

    @property
    def detects(self) -> bool:
        """Whether the model finds objects, and does not label pixels."""
        return self.config.get('default_scope') == 'mmdet'

    @property
    def generated(self) -> bool:
        """Whether the images are the generated scenes of ``--sample``."""
        root = Path(test_set(self.config).get('data_root') or '')
        return any((folder / MANIFEST).exists() for folder in (root, *root.parents))

    @property
    def iterations(self) -> int:
        """The last step of training that was logged."""
        return max((record['step'] for record in self.records if 'loss' in record), default=0)

    @property
    def sums_file(self) -> Path:
        """Where the counts of each image are, if the run was evaluated near boundaries."""
        return self.folder / FILE_NAME

    @property
    def checkpoint(self) -> Path | None:
        """The weights that the run ended with, or that were tested here; None if there are none."""
        pointer = self.folder / 'last_checkpoint'
        if pointer.exists():
            written = Path(pointer.read_text().strip())
            # mmengine writes where it was; the folder may have been moved or copied since
            for path in (self.folder / written.name, written):
                if path.is_file():
                    return path
        tested = self.config.get('load_from')
        return Path(tested) if tested and not self.iterations else None


def read_work_dir(folder: Path) -> Run:
    """Read what `tools/train.py` and `tools/test.py` leave."""
    if not folder.is_dir():
        raise WorkDirError(f'There is no folder {folder}. Give the --work-dir of a run.')
    dumped = sorted(folder.glob('*.py'), key=lambda path: path.stat().st_mtime)
    if not dumped:
        raise WorkDirError(
            f'{folder} is no work dir of a run: the config that each run leaves there (*.py) is '
            'missing. Give the --work-dir of tools/train.py or tools/test.py.'
        )
    starts = sorted(path for path in folder.iterdir() if _time(path.name))
    logs = {start: read_records(start / 'vis_data/scalars.json') for start in starts}
    trained = [start for start, (records, _) in logs.items() if any('loss' in r for r in records)]
    # a later test may have replaced the config in the work dir by its own
    config = next((c for s in trained[::-1] if (c := s / 'vis_data/config.py').exists()), None)
    return Run(
        folder,
        dumped[-1].stem,
        Config.fromfile(config or dumped[-1]),
        merge([records for records, _ in logs.values()]),
        _last_results(starts),
        _time((trained or starts)[-1].name) if starts else None,
        [
            f'{wrong} of the lines of {start.name}/vis_data/scalars.json cannot be read (the disk '
            'was full, or the run was killed while it wrote?) and are left out.'
            for start, (_, wrong) in logs.items()
            if wrong
        ],
    )


def test_set(config: Mapping) -> Mapping:
    """The config of the data that the model is tested on; empty if there is none."""
    return (config.get('test_dataloader') or {}).get('dataset', {})


def read_records(file: Path) -> tuple[list[dict[str, float]], int]:
    """The records of a file of mmengine's, and how many of its lines are none."""
    if not file.exists():
        return [], 0
    records, wrong = [], 0
    for line in file.read_text(errors='replace').splitlines():
        try:
            items = json.loads(line).items()
            records.append({name: value for name, value in items if _is_number(value)})
        except (ValueError, AttributeError):  # no JSON; JSON, but no record
            wrong += 1
    return records, wrong


def merge(runs: Iterable[Sequence[Mapping[str, float]]]) -> list[dict[str, float]]:
    """The history of a run that was stopped and resumed, in iterations.

    What a later start did again replaces what an earlier one did.

    Args:
        runs: the records of each start, in order.
    """
    history = []
    for records in runs:
        fresh = _in_iterations([record for record in records if 'step' in record])
        if fresh:
            first = min(record['step'] for record in fresh)
            history = [record for record in history if record['step'] < first] + fresh
    return sorted(history, key=lambda record: record['step'])


def _in_iterations(records: Iterable[Mapping[str, float]]) -> list[dict[str, float]]:
    """Validations at the iteration that they are of.

    Where a run logs metrics by epochs, which is mmengine's default, their step is the epoch; or 0,
    in a run that counts iterations otherwise. Then they are of the last iteration before them.
    """
    found, reached = [], 0
    for record in records:
        if 'loss' in record:
            reached = record['step']
        found.append({**record, 'step': max(record['step'], reached)})
    return found


def _last_results(starts: Sequence[Path]) -> dict[str, float]:
    """What the last of the tests found."""
    for start in reversed(starts):
        # training writes its own beside scalars.json
        records, _ = read_records(start / f'{start.name}.json')
        if records:
            return records[-1]
    return {}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _time(name: str) -> datetime | None:
    """The time in the name of a folder of mmengine's."""
    try:
        return datetime.strptime(name, '%Y%m%d_%H%M%S')
    except ValueError:
        return None

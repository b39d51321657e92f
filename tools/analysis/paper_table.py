"""The papers' numbers beside those of work dirs, and the commands that give the missing ones.

The papers' numbers are in the metafile.yml of each family or project. The run of a config is in
work_dirs/NAME, a run with other settings in work_dirs/NAME-ROW, where ROW says in a few words what
differs, and the test of published weights in work_dirs/NAME-ROW or work_dirs/NAME-published. The
last validation or test counts; of tests in the work dir of a run, those of its own checkpoints.
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from mmengine.config import Config

from mmbixt.cli import run, split_arguments
from mmbixt.config import CONFIGS, PROJECTS, ConfigError
from mmbixt.evaluation.boundary import MAIN_BAND
from mmbixt.evaluation.tables import aligned
from mmbixt.report.work_dir import is_training, last_checkpoint, last_scores

EPILOG = """Examples:
  python tools/analysis/paper_table.py biformer
  python tools/analysis/paper_table.py '*xcit*ade20k' --evaluate --boundary"""
NONE = '–'
TOOLS = Path(__file__).resolve().parents[1]
# metrics of the papers: the names that the frameworks log, and factors that give per cent
TTA = ' (ms+flip)'
SCORES = {
    'mIoU': ('mIoU', 1),
    f'mIoU{TTA}': ('mIoU', 1),
    'mIoU near boundaries': (f'{MAIN_BAND}/mIoU', 1),
    'top-1': ('accuracy/top1', 1),
    'top-5': ('accuracy/top5', 1),
    'box AP': ('coco/bbox_mAP', 100),
    'mask AP': ('coco/segm_mAP', 100),
    'overall accuracy': ('accuracy/overall', 1),
    'mean class accuracy': ('accuracy/class_mean', 1),
    'instance mIoU': ('parts/instance_mIoU', 1),
    'class mIoU': ('parts/class_mIoU', 1),
}
# what --boundary adds to them, by the title of the column
BOUNDARY = {
    'mIoU': {
        f'mIoU in {MAIN_BAND}': (f'{MAIN_BAND}/mIoU', 1),
        'Boundary IoU': ('boundary0.02/mIoU', 1),
    },
    'mask AP': {'boundary AP': ('coco/boundary_mAP', 100)},
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add = parser.add_argument
    text = "families such as xcit, or names or patterns of configs such as '*_in1k' (default: all)"
    add('names', nargs='*', metavar='FAMILY|CONFIG', help=text)
    add('--work-dirs', type=Path, default='work_dirs', help='folder of the work dirs')
    add('--boundary', action='store_true', help='also scores near boundaries')
    text = 'first test the published weights without scores; each is downloaded at its first use, '
    text += 'and arguments after -- are for tools/test.py'
    add('--evaluate', action='store_true', help=text)
    words, passed = split_arguments()
    args = parser.parse_args(words)
    args.passed = passed
    return args


# --- Rows -----------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A number of a paper, and the run that gives it here."""

    table: str  # names of the family and of the table
    config: str
    result: Mapping[str, Any]  # of the metafile
    metric: str
    has_boundary: bool  # whether tools/test.py takes the config with --boundary

    @property
    def label(self) -> str:
        what = self.result.get('Row') or ('published weights' if 'Weights' in self.result else '')
        return f'{self.config} ({what})' if what else self.config

    @property
    def has_run(self) -> bool:
        """Whether a config can give it: a note may say why none has the row."""
        result = self.result.keys()
        return bool(result & {'Options', 'Weights'}) or not {'Row', 'Note'} <= result

    @property
    def run(self) -> str:
        """The name of its work dir."""
        if self.result.keys() & {'Options', 'Weights'}:
            words = re.findall(r'[a-z0-9]+', self.result.get('Row', 'published').lower())
            return '-'.join([self.config, *words])
        return self.config

    @property
    def work_dir(self) -> str:
        """The work dir of its scores: a test with augmentation has one of its own."""
        return self.run + '-tta' * self.metric.endswith(TTA)


def families() -> dict[str, Path]:
    """The folders of configs and projects with a metafile, by their names."""
    folders = [path.parent for x in (CONFIGS, PROJECTS) for path in x.glob('*/metafile.yml')]
    return {folder.name: folder for folder in sorted(folders)}


@cache
def read_metafile(folder: Path) -> dict[str, Any]:
    """A metafile in which all values are strings, so that 80.10 keeps its digits."""
    return yaml.load((folder / 'metafile.yml').read_text(), yaml.BaseLoader)


def read_rows(names: Sequence[str] = ()) -> list[Row]:
    """The rows of families and configs, or of all, in order of the tables."""
    rows = []
    for family, folder in families().items():
        metafile = read_metafile(folder)
        title = metafile['Collections'][0]['Name']
        for model in metafile['Models']:
            if names and not any(x == family or fnmatch(model['Name'], x) for x in names):
                continue
            results = model.get('Results', [])
            has_boundary = any('Segmentation' in result['Task'] for result in results)
            for result in results:
                about = f'{title}, {result["Source"]}', model['Name'], result
                rows += [Row(*about, metric, has_boundary) for metric in result['Metrics']]
    if not rows:
        raise ConfigError(f'There are no results of {" ".join(names)}.')
    return sorted(rows, key=lambda row: row.table)


# --- The papers' numbers beside those of work dirs ------------------------------------------------


class WorkDirs(NamedTuple):
    """The scores of runs."""

    folder: Path
    boundary: bool

    def scores(self, row: Row) -> dict[str, float | None]:
        """The score of a row, and those near boundaries, by the titles of their columns."""
        found = self.last_scores(row)
        more = BOUNDARY.get(row.metric, {}) if self.boundary else {}
        wanted = {'here': SCORES.get(row.metric, ('', 1)), **more}
        return {
            title: factor * found[name] if name in found else None
            for title, (name, factor) in wanted.items()
        }

    def last_scores(self, row: Row) -> dict[str, float]:
        """The scores of a row in its work dir, which may also have other trainings and tests."""

        def counts(start: Path) -> bool:
            cfg = Config.fromfile(start / 'vis_data/config.py')  # written by mmengine
            tested = Path(cfg.load_from or '').resolve()
            own = is_training(start) or (self.folder / row.run).resolve() in tested.parents
            is_augmented = 'module' in cfg.model
            return (own, is_augmented) == ('Weights' not in row.result, row.metric.endswith(TTA))

        return last_scores(self.folder / row.work_dir, counts) if row.has_run else {}

    def command(self, row: Row) -> tuple[str, ...]:
        """The command that gives the scores of a row: a training, or the test of its result."""
        weights, run = row.result.get('Weights'), self.folder / row.run
        if not weights and last_scores(run, is_training):
            weights = last_checkpoint(run) or run / 'CHECKPOINT'
        options = shlex.split(row.result.get('Options', ''))
        options = ['--cfg-options', *options] if options else []
        if not weights:
            return ('tools/train.py', row.config, '--work-dir', str(run), *options)
        near = row.has_boundary and (self.boundary or row.metric == 'mIoU near boundaries')
        flags = ['--tta'] * row.metric.endswith(TTA) + ['--boundary'] * near
        work_dir = str(self.folder / row.work_dir)
        return ('tools/test.py', row.config, str(weights), *flags, '--work-dir', work_dir, *options)

    def missing(self, rows: Iterable[Row]) -> list[tuple[str, ...]]:
        """The commands for all scores that are missing and that the tools measure."""
        rows = [row for row in rows if row.has_run and row.metric in SCORES]
        empty = [row for row in rows if None in self.scores(row).values()]
        return list(dict.fromkeys(map(self.command, empty)))

    def with_trained(self, rows: Iterable[Row]) -> Iterator[Row]:
        """After published weights of a config also its own run, if there is one."""
        for row in rows:
            yield row
            own = row._replace(result={k: x for k, x in row.result.items() if k != 'Weights'})
            of_config = 'Weights' in row.result and not own.result.keys() & {'Row', 'Options'}
            if of_config and self.last_scores(own):
                yield own


def comparison_table(rows: Sequence[Row], work_dirs: WorkDirs) -> str:
    """A table of a paper as text, with its notes and the commands for what is missing."""
    scores = [work_dirs.scores(row) for row in rows]
    titles = list(dict.fromkeys(title for found in scores for title in found if title != 'here'))
    lines, notes = [['', 'metric', 'paper', 'here', 'difference', *titles]], Notes()
    for row, found in zip(rows, scores, strict=True):
        paper, here = row.result['Metrics'][row.metric], found['here']
        number = re.match(r'[\d.]+', paper)  # of '72.48 ± 0.45'; there may be none
        known = number and here is not None
        difference = f'{here - float(number[0]):+.2f}' if known else NONE
        label = row.label + notes.mark(row.result, ' [{}]')
        cells = [NONE if found.get(x) is None else f'{found[x]:.2f}' for x in ('here', *titles)]
        lines.append([label, row.metric, paper, cells[0], difference, *cells[1:]])
    lines = [rows[0].table, *aligned(lines), *notes.lines('[{}] {}')]
    if commands := work_dirs.missing(rows):
        lines += ['missing:', *(f'  python {shlex.join(words)}' for words in commands)]
    return '\n'.join(lines)


class Notes(list):
    """The notes of a table, which its cells refer to by number."""

    def mark(self, result: Mapping[str, Any], form: str) -> str:
        if 'Note' not in result:
            return ''
        if result['Note'] not in self:
            self.append(result['Note'])
        return form.format(self.index(result['Note']) + 1)

    def lines(self, form: str) -> list[str]:
        return [form.format(number, note) for number, note in enumerate(self, 1)]


def evaluate(rows: Sequence[Row], work_dirs: WorkDirs, passed: Sequence[str]) -> None:
    """Test the published weights without scores, one after the other; failures do not end it."""
    commands = work_dirs.missing(row for row in rows if 'Weights' in row.result)
    failed = []
    for number, (tool, *words) in enumerate(commands, 1):
        print(f'{number} of {len(commands)}: {shlex.join(["python", tool, *words])}', flush=True)
        done = subprocess.run([sys.executable, TOOLS / Path(tool).name, *words, *passed])
        if done.returncode:
            failed.append(words[1])
    if failed:
        print(f'Failed, with errors above: {", ".join(failed)}')


def main() -> None:
    args = parse_args()
    rows, work_dirs = read_rows(args.names), WorkDirs(args.work_dirs, args.boundary)
    if args.evaluate:
        evaluate(rows, work_dirs, args.passed)
    rows = work_dirs.with_trained(rows)
    for _, group in groupby(rows, key=lambda row: row.table):
        print(f'\n{comparison_table(list(group), work_dirs)}')


if __name__ == '__main__':
    run(main)

"""The report tool as a user calls it, on the work dir of a small run."""

import os
import runpy
import shutil
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from mmengine.config import Config
from test_report.runs import make_run, read_page

from mmbixt.evaluation.sums import read_sums, write_sums

TOOL = Path(__file__).parents[2] / 'tools/analysis/report.py'


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs the tool in this process: what it said, and what it ended with."""

    def run(*arguments):
        monkeypatch.setattr(sys, 'argv', [str(TOOL), *map(str, arguments)])
        code = None
        try:
            runpy.run_path(str(TOOL), run_name='__main__')
        except SystemExit as end:
            code = end.code
        return capsys.readouterr().out + (f'{code}' if code else '')

    return run


@pytest.fixture(scope='module')
def reported(tmp_path_factory):
    """A run of which nothing was counted, and what the tool said about it."""
    work_dir = make_run(tmp_path_factory.mktemp('user'))
    done = subprocess.run(
        [sys.executable, TOOL, work_dir, '--images', '1'],
        env={**os.environ, 'OMP_NUM_THREADS': '1'},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return work_dir, done.stdout, done.stderr


@pytest.fixture
def work_dir(reported, tmp_path):
    """A copy of the run, to be damaged."""
    return shutil.copytree(reported[0], tmp_path / 'run')


def test_one_command_makes_everything(reported):
    work_dir, said, progress = reported
    assert f'report: {work_dir / "report.html"}' in said
    assert '/4 [' in progress
    assert len(read_sums(work_dir / 'boundary.npz').images) == 4
    page = read_page(work_dir / 'report.html')
    assert len(page.all('figcaption')) == 2
    assert len(page.all('button', **{'class': 'picture'})) == 4  # errors and attention
    assert 'generated scenes' in page.text
    assert 'million parameters' in page.text
    assert (work_dir / 'report.html').stat().st_size < 2e6


def test_counts_that_are_there_are_taken(work_dir, call):
    before = (work_dir / 'boundary.npz').stat().st_mtime_ns
    out = work_dir / 'elsewhere/mine.html'
    said = call(work_dir, '--images', 0, '--out', out, '--band', 'band1px')
    assert 'predicting' not in said
    assert (work_dir / 'boundary.npz').stat().st_mtime_ns == before
    page = read_page(out)
    assert 'band of 1\xa0px' in page.text
    assert '(--images 0)' in page.text
    assert 'band1px, band3px, band5px' in call(work_dir, '--band', 'band7px')


def test_other_weights_are_counted_anew(work_dir, call):
    before = (work_dir / 'boundary.npz').stat().st_mtime_ns
    shutil.copy(work_dir / 'iter_100.pth', work_dir / 'other.pth')
    said = call(work_dir, '--images', 0, '--checkpoint', work_dir / 'other.pth')
    assert 'predicting the' in said
    assert (work_dir / 'boundary.npz').stat().st_mtime_ns == before
    assert 'weights of other.pth' in read_page(work_dir / 'report.html').text


def test_without_the_model(work_dir, call):
    said = call(work_dir, '--no-model')
    assert '\nno pictures: The model was not run (--no-model).' in f'\n{said}'
    page = read_page(work_dir / 'report.html')
    assert len(page.all('table')) == 2
    assert 'million parameters' not in page.text


def test_no_checkpoint(work_dir, call):
    (work_dir / 'boundary.npz').unlink()
    (work_dir / 'iter_100.pth').unlink()
    said = call(work_dir)
    assert f'There is no checkpoint in {work_dir}' in said
    page = read_page(work_dir / 'report.html')
    assert page.text.count('There is no checkpoint') == 3
    assert len(page.all('svg')) == 3


def test_evaluation_that_is_not_possible(work_dir, call):
    (work_dir / 'iter_100.pth').unlink()
    said = call(work_dir, '--evaluate', '--out', work_dir / 'no.html')
    assert said.startswith('error: --evaluate: There is no checkpoint')
    assert '2' in call(work_dir, '--evaluate', '--no-model', '--out', work_dir / 'no.html')
    assert not [*work_dir.glob('*no.html*')]


def test_after_test_time_augmentation_the_plain_model_is_run(work_dir, call):
    config = Config.fromfile(work_dir / 'mine.py')
    config.val_dataloader = deepcopy(config.test_dataloader)
    config.test_dataloader.dataset.pipeline = []
    config.model = dict(type='SegTTAModel', module=config.model)
    config.dump(work_dir / 'mine.py')
    assert 'predicting the 4 images' in call(work_dir, '--evaluate', '--images', 0)
    page = read_page(work_dir / 'report.html')
    assert 'million parameters' in page.text
    assert len(page.all('table')) == 2


def test_counts_of_other_images_and_of_other_weights(work_dir, call):
    counts = read_sums(work_dir / 'boundary.npz')
    # as if all pixels had been right
    changed = {
        name: counts.counts.get(f'{name.partition("/")[0]}/true', values)
        for name, values in counts.counts.items()
    }
    write_sums(work_dir / 'boundary.npz', counts.images, counts.classes, changed)
    call(work_dir, '--images', 4)
    assert 'the model predicts something else' in read_page(work_dir / 'report.html').text
    write_sums(work_dir / 'boundary.npz', ['a.jpg', 'b', 'c', 'd'], counts.classes, changed)
    assert 'is not among its 4' in call(work_dir)
    assert 'are of other images' in read_page(work_dir / 'report.html').text


def test_broken_checkpoint(work_dir, call):
    (work_dir / 'iter_100.pth').write_bytes(b'half')
    assert 'cannot be read as a checkpoint' in call(work_dir)
    assert len(read_page(work_dir / 'report.html').all('table')) == 2
    # but with one that was asked for, it is an error
    said = call(work_dir, '--checkpoint', work_dir / 'iter_100.pth', '--out', work_dir / 'no.html')
    assert 'BrokenCheckpointError: ' in said
    assert not (work_dir / 'no.html').exists()


def test_images_that_are_elsewhere(work_dir, call):
    (work_dir / 'boundary.npz').unlink()
    said = call(work_dir, '--cfg-options', 'test_dataloader.dataset.data_root=nowhere')
    assert 'The dataset of this config (ADE20KDataset) is not here' in said
    assert 'nowhere/images/validation' in read_page(work_dir / 'report.html').text


def test_counts_that_cannot_be_kept_are_shown_nevertheless(work_dir, call, monkeypatch):
    def write_sums(*_):
        raise OSError(28, 'No space left on device')

    (work_dir / 'boundary.npz').unlink()
    monkeypatch.setattr('mmbixt.report.collect.write_sums', write_sums)
    assert 'not kept for the next time: [Errno 28] No space' in call(work_dir, '--images', 0)
    assert len(read_page(work_dir / 'report.html').all('table')) == 2
    assert not (work_dir / 'boundary.npz').exists()


def test_place_that_cannot_be_written_is_refused_before_the_work(work_dir, call):
    (work_dir / 'a_file').touch()
    said = call(work_dir, '--evaluate', '--out', work_dir / 'a_file/report.html')
    assert 'a_file' in said
    assert 'predicting' not in said
    assert 'Traceback' not in said


@pytest.mark.parametrize('name', ['missing', 'empty'])
def test_no_work_dir(tmp_path, call, name):
    (tmp_path / 'empty').mkdir()
    said = call(tmp_path / name)
    assert said.startswith('error: ')
    assert str(tmp_path / name) in said
    assert '--work-dir' in said


def test_broken_counts(work_dir, call):
    (work_dir / 'boundary.npz').write_bytes(b'half')
    assert 'is not a file of counts of images' in call(work_dir)
    assert 'report: ' in call(work_dir, '--evaluate', '--images', 0)

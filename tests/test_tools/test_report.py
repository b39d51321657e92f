"""The report tool on the work dir of a small run."""

import shutil

import pytest
from filelock import FileLock
from test_report.runs import make_run, read_page

from mmbixt.evaluation.sums import read_sums, write_sums

TOOL = 'analysis/report.py'


@pytest.fixture(scope='session')
def reported(shared, within):
    """A run without counts, and the output of the tool for it; for all workers."""
    folder = shared / 'reported'
    with FileLock(shared / 'reported.lock'):
        if not (folder / 'said.txt').exists():
            folder.mkdir()
            done = within(TOOL, make_run(folder), '--images', 1)
            (folder / 'said.txt').write_text(done.said)
    return folder / 'run', (folder / 'said.txt').read_text()


@pytest.fixture
def work_dir(reported, tmp_path):
    """A copy of the run, to be damaged."""
    return shutil.copytree(reported[0], tmp_path / 'run')


@pytest.fixture
def report(within):
    """Runs the tool; returns its output."""

    def report(*arguments):
        done = within(TOOL, *arguments, fails=None)
        assert 'Traceback' not in done.stderr
        return done.said

    return report


def test_one_command_writes_counts_and_report(reported):
    work_dir, said = reported
    assert f'report: {work_dir / "report.html"}' in said
    assert len(read_sums(work_dir / 'boundary.npz').images) == 4
    page = read_page(work_dir / 'report.html')
    assert len(page.all('figcaption')) == 2
    assert len(page.all('button', **{'class': 'picture'})) == 2
    assert 'mine on generated scenes: report of a run' in page.text
    assert 'million parameters' in page.text
    assert (work_dir / 'report.html').stat().st_size < 2e6


def test_existing_counts_are_used(work_dir, report):
    before = (work_dir / 'boundary.npz').stat().st_mtime_ns
    out = work_dir / 'elsewhere/mine.html'
    said = report(work_dir, '--images', 0, '--out', out, '--band', 'band1px')
    assert 'predicting' not in said
    assert (work_dir / 'boundary.npz').stat().st_mtime_ns == before
    page = read_page(out)
    assert 'band of 1\xa0px' in page.text
    assert '(--images 0)' in page.text
    assert 'band1px, band3px, band5px' in report(work_dir, '--band', 'band7px')


def test_other_weights_are_counted_again(work_dir, report):
    before = (work_dir / 'boundary.npz').stat().st_mtime_ns
    (work_dir / 'iter_100.pth').rename(work_dir / 'other.pth')
    said = report(work_dir, '--images', 0, '--checkpoint', work_dir / 'other.pth')
    assert 'predicting the' in said
    assert (work_dir / 'boundary.npz').stat().st_mtime_ns == before
    assert 'weights of other.pth' in read_page(work_dir / 'report.html').text


def test_no_checkpoint(work_dir, report):
    (work_dir / 'boundary.npz').unlink()
    (work_dir / 'iter_100.pth').unlink()
    assert f'There is no checkpoint in {work_dir}' in report(work_dir)
    page = read_page(work_dir / 'report.html')
    assert page.text.count('There is no checkpoint') == 3
    assert len(page.all('svg')) == 3


def test_broken_checkpoint_counts_and_images_that_are_elsewhere(work_dir, report):
    elsewhere = '--cfg-options', 'test_dataloader.dataset.data_root=nowhere'
    assert 'nowhere/images/validation' in report(work_dir, *elsewhere)
    assert len(read_page(work_dir / 'report.html').all('table')) == 2
    (work_dir / 'iter_100.pth').write_bytes(b'half')
    assert 'iter_100.pth' in report(work_dir)
    assert len(read_page(work_dir / 'report.html').all('table')) == 2
    # but with --checkpoint it is an error
    said = report(work_dir, '--checkpoint', work_dir / 'iter_100.pth')
    assert 'CheckpointFileError: ' in said
    (work_dir / 'boundary.npz').write_bytes(b'half')
    assert 'boundary.npz is not a file of counts' in report(work_dir)


def test_counts_of_other_images_classes_and_weights(work_dir, report):
    counted = read_sums(work_dir / 'boundary.npz')
    # the counts of a perfect prediction
    perfect = {
        name: counted.counts.get(f'{name.partition("/")[0]}/true', values)
        for name, values in counted.counts.items()
    }
    for images, classes, message in (
        (['a.jpg', 'b', 'c', 'd'], counted.classes, 'are of another test set'),
        (counted.images, ['fog', *counted.classes[1:]], 'are of other classes'),
    ):
        write_sums(work_dir / 'boundary.npz', images, classes, perfect)
        assert message in report(work_dir, '--images', 1)
    write_sums(work_dir / 'boundary.npz', counted.images, counted.classes, perfect)
    report(work_dir, '--images', 1)
    text = read_page(work_dir / 'report.html').text
    assert 'the predictions differ from the counts' in text

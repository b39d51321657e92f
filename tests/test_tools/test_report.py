"""The report tool on the work dir of a small run."""

import numpy as np
from test_report.runs import make_run, read_page

from mmbixt.evaluation.sums import read_sums

TOOL = 'analysis/report.py'


def test_one_command_writes_counts_and_report_and_the_next_uses_them(within, tmp_path):
    work_dir = make_run(tmp_path)
    report, counts = work_dir / 'report.html', work_dir / 'boundary.npz'
    assert f'report: {report}' in within(TOOL, work_dir, '--images', 1).said
    assert len(read_sums(counts).images) == 4
    page = read_page(report)
    assert len(page.all('figcaption')) == 2
    assert len(page.all('button', **{'class': 'picture'})) == 2
    assert 'mine on generated scenes: report of a run' in page.text
    before, out = counts.stat().st_mtime_ns, work_dir / 'elsewhere/mine.html'
    options = '--images', 0, '--out', out, '--band', 'band1px'
    assert 'predicting' not in within(TOOL, work_dir, *options).said
    assert counts.stat().st_mtime_ns == before
    page = read_page(out)
    assert 'band of 1\xa0px' in page.text
    assert '(--images 0)' in page.text


def test_counts_in_windows_are_those_of_the_test(within, tmp_path):
    windows = {f'model.test_cfg.{name}': (40, 32) for name in ('crop_size', 'stride')}
    options = {'model.test_cfg.mode': 'slide', 'model.test_cfg.stride': (28, 24)}
    options['test_dataloader.dataset.pipeline.1.scale'] = 64, 48
    work_dir = make_run(tmp_path, **windows | options)
    within(TOOL, work_dir, '--images', 0)
    test = work_dir / 'mine.py', work_dir / 'iter_100.pth', '--boundary', '--work-dir', tmp_path
    within('test.py', *test)
    counts, expected = (read_sums(x / 'boundary.npz') for x in (work_dir, tmp_path))
    assert (counts.counts['all/predicted'].sum(0) > 0).sum() > 1
    for name, values in counts.counts.items():
        np.testing.assert_array_equal(values, expected.counts[name])


def test_without_checkpoint_the_report_says_so(within, tmp_path):
    work_dir = make_run(tmp_path)
    (work_dir / 'iter_100.pth').unlink()
    assert f'There is no checkpoint in {work_dir}' in within(TOOL, work_dir, fails=None).said
    page = read_page(work_dir / 'report.html')
    assert page.text.count('There is no checkpoint') == 3
    assert len(page.all('svg')) == 3

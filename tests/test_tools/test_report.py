"""The report tool on the work dir of a small run."""

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
    assert 'million parameters' in page.text
    assert report.stat().st_size < 2e6
    before, out = counts.stat().st_mtime_ns, work_dir / 'elsewhere/mine.html'
    options = '--images', 0, '--out', out, '--band', 'band1px'
    assert 'predicting' not in within(TOOL, work_dir, *options).said
    assert counts.stat().st_mtime_ns == before
    page = read_page(out)
    assert 'band of 1\xa0px' in page.text
    assert '(--images 0)' in page.text


def test_without_checkpoint_the_report_says_so(within, tmp_path):
    work_dir = make_run(tmp_path)
    (work_dir / 'iter_100.pth').unlink()
    assert f'There is no checkpoint in {work_dir}' in within(TOOL, work_dir, fails=None).said
    page = read_page(work_dir / 'report.html')
    assert page.text.count('There is no checkpoint') == 3
    assert len(page.all('svg')) == 3

import json

import numpy as np
import pytest
from test_report.runs import Reader, sums, train_record, val_record, write_log

from mmbixt.report.collect import ReportData
from mmbixt.report.page import make_page
from mmbixt.report.predictions import Example
from mmbixt.report.work_dir import Run

SECTIONS = ['training', 'scores', 'classes', 'pictures', 'configuration']
# names that break pages which do not escape them
HOSTILE = '<script>window.broken = 1</script>'
QUOTED = '"><img src=x onerror="window.broken = 1">'
CLASSES = [HOSTILE, QUOTED, 'a & b', 'never']
RECORDS = [train_record(10), val_record(10, 20.0), train_record(20), val_record(20, 40.0)]


@pytest.fixture
def make_run(tmp_path):
    """Writes the work dir of a run with a log, and with the results of a test."""

    def make(config='', records=RECORDS, results=None):
        folder = tmp_path / f'run {len(list(tmp_path.iterdir()))}'
        start = write_log(folder, '20250101_100000', records)
        model = "model = dict(type='EncoderDecoder', backbone=dict(type='mmbixt.BiXT'))"
        (folder / 'mine.py').write_text(f'{model}\n{config}')
        if results:
            (start / f'{start.name}.json').write_text(json.dumps(results))
        return Run(folder)

    return make


@pytest.fixture
def full(make_run):
    """Data for all parts of a page, with names that must be escaped."""
    rng = np.random.default_rng(0)
    truths = rng.integers(0, 2, (6, 4, 5)).repeat(6, 1).repeat(6, 2)
    counts = sums(CLASSES, *[(t, np.where(rng.random(t.shape) < 0.2, 2, t)) for t in truths])
    run = make_run(f'note = {HOSTILE + QUOTED!r}')
    run.name, picture = QUOTED, 'data:image/webp;base64,e'
    names = {HOSTILE: True, 'b.jpg': False, QUOTED: False}
    worst, other, best = (Example(name, 10.0, 20.0, bad, picture) for name, bad in names.items())
    examples = {'Worst': [worst, other], 'Best': [best]}
    return ReportData(run, 5_000_000, 'iter_20.pth', counts, 'band3px', examples)


def test_page_with_all_parts(full):
    page = Reader(make_page(full))
    assert [found['id'] for found in page.all('section')] == SECTIONS
    counted = {tag: len(page.all(tag)) for tag in ('svg', 'table', 'figcaption', 'img')}
    assert counted == dict(svg=3, table=2, figcaption=3, img=3 + 1)  # and an empty one to enlarge
    shown = 'backbone mmbixt.BiXT', '6 test images', '5.0 million parameters', 'iter_20.pth'
    for text in (*CLASSES[:3], full.run.name, *shown):
        assert text in page.text
    # nothing is loaded from a network
    [policy] = page.all('meta', **{'http-equiv': 'Content-Security-Policy'})
    assert policy['content'].startswith("default-src 'none'; img-src data:;")


def test_everything_is_escaped(full):
    """Names appear as text, never as elements, and are escaped only once."""
    full.weights = full.run.config.model.type = HOSTILE
    full.run.predictions = {'type': QUOTED}
    page = Reader(make_page(full))
    assert len(page.all('script')) == 1
    assert not page.all('img', src='x')
    assert page.text.count(HOSTILE) >= 5  # class, image, config, model, weights


def test_detector(make_run):
    scores = {'coco/bbox_mAP': 0.1, 'coco/segm_mAP': 0.05, 'coco/segm_mAP_l': -1.0}
    page = Reader(make_page(ReportData(make_run("default_scope = 'mmdet'", results=scores))))
    assert [found['id'] for found in page.all('section')] == ['training', 'scores', 'configuration']
    assert '0.050' in page.text
    page = Reader(make_page(ReportData(make_run("default_scope = 'mmdet'", records=[]))))
    assert 'The run was not evaluated' in page.text

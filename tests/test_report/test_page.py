import json

import numpy as np
from test_report.runs import Reader, sums, train_record, val_record, write_log

from mmbixt.report.data import ReportData
from mmbixt.report.page import make_page
from mmbixt.report.predictions import Example
from mmbixt.report.work_dir import Run

# names that break pages which do not escape them
HOSTILE = '<script>window.broken = 1</script>'
QUOTED = '"><img src=x onerror="window.broken = 1">'
CLASSES = [HOSTILE, QUOTED, 'a & b', 'never']
RECORDS = [train_record(10), val_record(10, 20.0), train_record(20), val_record(20, 40.0)]


def make_run(folder, config='', results=None):
    """The work dir of a run with a log, and perhaps with the results of a test."""
    start = write_log(folder, '20250101_100000', RECORDS)
    model = "model = dict(type='EncoderDecoder', backbone=dict(type='mmbixt.BiXT'))"
    (folder / 'mine.py').write_text(f'{model}\n{config}')
    if results:
        (start / f'{start.name}.json').write_text(json.dumps(results))
    return Run(folder)


def test_everything_is_escaped(tmp_path):
    """Names appear as text, never as elements, and are escaped only once."""
    rng = np.random.default_rng(0)
    truths = rng.integers(0, 2, (6, 4, 5)).repeat(6, 1).repeat(6, 2)
    counts = sums(CLASSES, *[(t, np.where(rng.random(t.shape) < 0.2, 2, t)) for t in truths])
    run = make_run(tmp_path, f'note = {HOSTILE + QUOTED!r}')
    run.name, picture = QUOTED, 'data:image/webp;base64,e'
    run.config.model.type, run.predictions = HOSTILE, {'type': QUOTED}
    worst, best = (Example(name, 10.0, 20.0, True, picture) for name in (HOSTILE, QUOTED))
    examples = {'Worst': [worst], 'Best': [best]}
    data = ReportData(run, 5_000_000, HOSTILE, counts, 'band3px', examples)
    page = Reader(make_page(data))
    assert len(page.all('script')) == 1
    assert not page.all('img', src='x')
    assert page.text.count(HOSTILE) >= 5  # class, image, config, model, weights
    assert all(name in page.text for name in CLASSES[:3])
    # nothing is loaded from a network
    [policy] = page.all('meta', **{'http-equiv': 'Content-Security-Policy'})
    assert policy['content'].startswith("default-src 'none'; img-src data:;")


def test_detector(tmp_path):
    scores = {'coco/bbox_mAP': 0.1, 'coco/segm_mAP': 0.05, 'coco/segm_mAP_l': -1.0}
    run = make_run(tmp_path, "default_scope = 'mmdet'", scores)
    page = Reader(make_page(ReportData(run)))
    assert [found['id'] for found in page.all('section')] == ['training', 'scores', 'configuration']
    assert '0.050' in page.text

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from test_reporting.runs import (
    HOSTILE,
    QUOTED,
    Reader,
    sums,
    train_record,
    val_record,
    write_resumed_logs,
)

from mmbixt.reporting.gallery import Exhibit, Gallery, Picture
from mmbixt.reporting.page import Material, make_page
from mmbixt.reporting.work_dir import Run, read_work_dir

SECTIONS = ['training', 'scores', 'classes', 'pictures', 'configuration']
CLASSES = [HOSTILE, QUOTED, 'a & b', 'never']


def make_run(config='', **about):
    text = "model = dict(type='EncoderDecoder', backbone=dict(type='mmbixt.BiXT'))\n" + config
    usual = dict(
        folder=Path('work'),
        name='mine',
        config=Config.fromstring(text, '.py'),
        records=[train_record(10), val_record(10, 20.0), train_record(20), val_record(20, 40.0)],
        results={},
        date=None,
        unreadable=[],
    )
    return Run(**usual | about)


@pytest.fixture
def counted():
    rng = np.random.default_rng(0)
    truths = rng.integers(0, 2, (6, 4, 5)).repeat(6, 1).repeat(6, 2)
    return sums(CLASSES, *[(t, np.where(rng.random(t.shape) < 0.2, 2, t)) for t in truths])


def picture(name):
    return Picture(f'data:image/webp;base64,{name}', 30, 20)


def exhibit(name, counted=10.0):
    return Exhibit(name, 10.0, 20.0, counted, picture('errors'), picture('attention'))


@pytest.fixture
def full(counted):
    """Everything that a page can show, under names that are hard to show."""
    gallery = Gallery([exhibit(HOSTILE), exhibit('b.jpg', 15.0)], [exhibit(QUOTED)])
    run = make_run(f'note = {HOSTILE + QUOTED!r}', name=QUOTED, unreadable=[HOSTILE])
    return Material(run, 5_000_000, 'band3px', counted, gallery)


def test_page_of_everything(full):
    page = Reader(make_page(full))
    assert [found['id'] for found in page.all('section')] == SECTIONS
    assert [f'#{name}' for name in SECTIONS] == [a['href'] for a in page.all('a')]
    assert len(page.all('div', **{'class': 'tile'})) == 4
    assert len(page.all('svg')) == 3
    assert len(page.all('table')) == 2
    assert len(page.all('figure', **{'class': 'exhibit'})) == 3
    assert len(page.all('img')) == 6 + 1  # and the one that enlarges
    assert '5.0 million parameters' in page.text
    assert '1 are neither in the truth nor in a prediction' in page.text
    for text in (*CLASSES[:3], full.run.name):
        assert text in page.text


def test_nothing_is_loaded_from_elsewhere(full):
    text = make_page(full)
    page = Reader(text)
    assert all(url.startswith(('data:', '#')) for url in page.addresses)
    assert not re.search(r'@import|url\(|https?:', text)
    [policy] = page.all('meta', **{'http-equiv': 'Content-Security-Policy'})
    assert policy['content'].startswith("default-src 'none'; img-src data:;")


def test_everything_is_escaped(full):
    """What is escaped once is found as text, and never as an element."""
    page = Reader(make_page(full))
    assert len(page.all('script')) == 1
    assert not page.all('img', src='x')
    assert page.text.count(HOSTILE) >= 4  # unreadable, class, image, config
    assert 'window.broken' not in ' '.join(map(str, page.addresses))


def test_only_classes_that_occur_have_rows(full):
    text = make_page(full)
    rows = re.findall(
        r'<tr.*?</tr>', text[text.index('id="classes"') : text.index('id="pictures"')]
    )
    assert len(rows) == 1 + 3
    assert [row.startswith('<tr class="dim"') for row in rows] == [False, False, False, True]
    assert 'Grey: predicted, but nowhere in the truth' in text


def test_counts_of_another_checkpoint_are_pointed_out(full):
    assert 'For 1 of these images the model predicts something else' in make_page(full)
    assert full.gallery.strangers == 1


def test_what_is_not_there_is_said():
    material = Material(make_run(records=[]), None, uncounted='No counts.', undrawn='No pictures.')
    page = Reader(make_page(material))
    assert page.text.count('No counts.') == 2
    assert page.text.count('No pictures.') == 1
    assert 'No records of training' in page.text
    assert 'parameters' not in page.text
    assert material.shortcomings == [
        'no scores near boundaries: No counts.',
        'no pictures: No pictures.',
    ]
    material = replace(material, undrawn='No counts.')
    assert material.shortcomings == ['no scores near boundaries, no pictures: No counts.']


def test_no_errors_are_no_share_of_errors(counted):
    truth = np.arange(400, dtype=np.uint8).reshape(20, 20) // 200
    perfect = sums(CLASSES, (truth, truth), (truth, truth))
    for band in ('band3px', None):
        page = Reader(make_page(Material(make_run(), None, band, perfect)))
        assert 'Of its errors' not in page.text
        assert 'nan' not in page.text
    assert 'Of its errors' in make_page(Material(make_run(), None, 'band3px', counted))


def test_final_scores_stand_in_for_counts():
    page = Reader(make_page(Material(make_run(), None)))
    assert '40.0 %' in page.text
    tested = make_run(results={'mIoU': 12.3})
    assert '12.3 %' in Reader(make_page(Material(tested, None))).text


@pytest.mark.parametrize(('records', 'lines'), [(39, 1), (60, 2)])
def test_long_trainings_are_smoothed(records, lines):
    run = make_run(records=[{'loss': 1.0, 'step': step} for step in range(1, records + 1)])
    page = make_page(Material(run, None))
    assert page.count('<polyline') == lines
    assert ('mean of 3 records' in page) == (lines == 2)


def test_validation_shows_the_band_too():
    def legends(run):
        text = make_page(Material(run, None))
        return re.findall(r'</span>([^<]*)</li>', text[text.index('<h3>Validation') :])

    run = make_run()
    assert [name.replace('\xa0', ' ') for name in legends(run)] == ['all pixels', 'band of 3 px']
    without = [{key: r[key] for key in r if key != 'band3px/mIoU'} for r in run.records]
    assert legends(make_run(records=without)) == ['all pixels']
    text = make_page(Material(make_run(records=without), None))
    assert 'mmbixt.BoundaryIoUMetric' in text
    never = [record for record in run.records if 'loss' in record]
    assert 'not evaluated while it was trained' in make_page(
        Material(make_run(records=never), None)
    )


def test_detector():
    scores = {'coco/bbox_mAP': 0.1, 'coco/segm_mAP': 0.05, 'coco/segm_mAP_l': -1.0}
    records = [train_record(10), {**scores, 'step': 10, 'time': 0.777}]
    material = Material(make_run("default_scope = 'mmdet'", records=records), 1)
    text = make_page(material)
    page = Reader(text)
    assert [found['id'] for found in page.all('section')] == ['training', 'scores', 'configuration']
    for words in ('mAP of boxes', 'Masks', '0.050', 'finds objects', '--boundary measures edges'):
        assert words in page.text
    assert re.findall(r'<tr><th scope="row" data-value="masks">.*?</tr>', text)[0].count('–') == 5
    assert '0.777' not in page.text
    assert material.shortcomings == []
    tested = make_run("default_scope = 'mmdet'", results={**scores, 'coco/boundary_mAP': 0.02})
    page = Reader(make_page(Material(tested, 1)))
    assert 'Mask edges' in page.text
    assert '--boundary' not in page.text
    never = make_run("default_scope = 'mmdet'", records=[train_record(10)])
    assert 'The run was not evaluated' in make_page(Material(never, 1))


def test_run_of_mmengine_is_read(tmp_path):
    (tmp_path / 'mine.py').write_text("model = dict(type='EncoderDecoder')")
    write_resumed_logs(tmp_path)
    page = Reader(make_page(Material(read_work_dir(tmp_path), None)))
    assert '100 iterations of training' in page.text
    assert '2 January 2025' in page.text
    assert '1 of the lines of 20250101_100000/vis_data/scalars.json' in page.text

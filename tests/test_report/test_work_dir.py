import json
from datetime import datetime
from pathlib import Path

import pytest
from test_report.runs import STEPS, train_record, val_record, write_log, write_resumed_logs

from mmbixt.report.work_dir import Run, merge

CONFIG = "default_scope = 'mmseg'\nmodel = dict(type='EncoderDecoder')\nload_from = None"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / 'mine.py').write_text(CONFIG)
    return tmp_path


def test_resumed_run_is_one_history(folder):
    write_resumed_logs(folder)
    run = Run(folder)
    assert run.curve('loss')[:, 0].tolist() == [10 * i for i in range(1, 11)]
    assert run.curve('mIoU').tolist() == [[50, 20], [100, 40]]
    assert (run.name, run.iterations, run.date) == ('mine', 100, datetime(2025, 1, 2, 10))
    # repeated steps replace the earlier ones, and all later records of the first start
    first = [train_record(10), train_record(20, loss=1.0), train_record(30)]
    found = merge([first, [], [train_record(20, loss=2.0)]])
    assert [(record['step'], record['loss']) for record in found] == [(10, 1.0), (20, 2.0)]


@pytest.mark.parametrize('steps', [(1, 2), (0, 0), (50, 100)])
def test_validations_get_their_iteration(steps):
    """Logged by epoch, at step 0, or by iteration."""
    records = [train_record(step) for step in STEPS]
    first, second = ({'coco/bbox_mAP': step / 10, 'step': step} for step in steps)
    found = merge([[*records[:5], first, *records[5:], second]])
    assert [r['step'] for r in found if 'loss' not in r] == [50, 100]


def test_config_is_that_of_the_training(folder):
    """A later test in the same work dir overwrites the config there."""
    for day, records in ((1, [train_record(10)]), (2, [])):
        start = write_log(folder, f'2025010{day}_100000', records)
        (start / 'vis_data/config.py').write_text(f"model = dict(type='Of day {day}')")
    assert Run(folder).config.model.type == 'Of day 1'
    assert Run(folder).date.day == 1


def test_checkpoint_is_the_last_or_the_best_or_the_tested_one(folder):
    tested = {'load_from': 'tested.pth'}  # in the config of a test
    assert Run(folder).checkpoint is None
    assert Run(folder, tested).checkpoint == Path('tested.pth')
    # the initial weights of a training are not its result
    write_log(folder, '20250101_100000', [train_record(10)])
    assert Run(folder, tested).checkpoint is None
    (folder / 'best_mIoU_iter_1.pth').touch()
    (folder / 'last_checkpoint').write_text('/nowhere/iter_2.pth')
    assert Run(folder).checkpoint == folder / 'best_mIoU_iter_1.pth'
    (folder / 'iter_2.pth').touch()  # in a work dir that was moved
    assert Run(folder).checkpoint == folder / 'iter_2.pth'


def test_scores_are_those_of_the_last_test_or_validation(folder):
    write_log(folder, '20250101_100000', [train_record(10), val_record(10, 20.0)])
    assert Run(folder).scores == {'mIoU': 20.0, 'band3px/mIoU': 10.0}
    for day, score in ((2, 30.0), (3, 40.0)):
        start = write_log(folder, f'2025010{day}_100000', [])
        (start / f'{start.name}.json').write_text(json.dumps({'mIoU': score, 'time': 0.1}))
    assert Run(folder).scores == {'mIoU': 40.0}
    write_log(folder, '20250104_100000', [train_record(20), val_record(20, 50.0)])  # resumed
    assert Run(folder).scores == {'mIoU': 50.0, 'band3px/mIoU': 25.0}

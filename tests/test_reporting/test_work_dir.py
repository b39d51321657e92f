import json
import os
from datetime import datetime
from pathlib import Path

import pytest
from test_reporting.runs import STEPS, train_record, val_record, write_log, write_resumed_logs

from mmbixt.reporting.work_dir import WorkDirError, merge, read_records, read_work_dir
from mmbixt.sample.sample_data import MANIFEST

CONFIG = """
default_scope = 'mmseg'
model = dict(type='EncoderDecoder')
test_dataloader = dict(dataset=dict(type='ADE20KDataset', data_root='{root}'))
load_from = None
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / 'mine.py').write_text(CONFIG.format(root=tmp_path / 'data/ade'))
    return tmp_path


def test_resumed_run_is_one_history(folder):
    write_resumed_logs(folder)
    run = read_work_dir(folder)
    trained = [record['step'] for record in run.records if 'loss' in record]
    assert trained == [10 * i for i in range(1, 11)]
    assert [r['step'] for r in run.records if 'mIoU' in r] == [50, 100]
    assert run.iterations == 100
    assert run.date == datetime(2025, 1, 2, 10)
    assert run.name == 'mine'
    assert len(run.unreadable) == 1
    assert '20250101_100000/vis_data/scalars.json' in run.unreadable[0]


def test_what_was_done_again_replaces_what_was_before():
    first = [train_record(10), train_record(20, loss=1.0), train_record(30)]
    again = [train_record(20, loss=2.0)]
    found = merge([first, [], again])
    assert [(record['step'], record['loss']) for record in found] == [(10, 1.0), (20, 2.0)]


@pytest.mark.parametrize('steps', [(1, 2), (0, 0), (50, 100)])
def test_validations_are_at_the_iteration_that_they_are_of(steps):
    """Whether they are logged by epochs, by nothing at all or by iterations."""
    records = [train_record(step) for step in STEPS]
    first, second = ({'coco/bbox_mAP': step / 10, 'step': step} for step in steps)
    found = merge([[*records[:5], first, *records[5:], second]])
    assert [r['step'] for r in found if 'loss' not in r] == [50, 100]


def test_validation_between_two_records_of_training():
    assert merge([[train_record(50), val_record(70, 1.0), train_record(100)]])[1]['step'] == 70


def test_lines_that_are_no_records_are_counted(tmp_path):
    file = tmp_path / 'scalars.json'
    assert read_records(file) == ([], 0)
    lines = ['{"step": 1, "loss": NaN, "name": "x"}', '[1]', '7', '{"st', '\x00', '{"step": 2}']
    file.write_text('\n'.join(lines))
    assert read_records(file) == ([{'step': 1}, {'step': 2}], 4)


def test_config_of_the_training_is_the_one_that_counts(folder):
    """A test in the same work dir writes its own over it."""
    start = write_log(folder, '20250101_100000', [train_record(10)])
    (start / 'vis_data/config.py').write_text("model = dict(type='Trained')")
    tested = write_log(folder, '20250102_100000', [])
    (tested / 'vis_data/config.py').write_text("model = dict(type='Tested')")
    assert read_work_dir(folder).config.model.type == 'Trained'
    assert read_work_dir(folder).date.day == 1


def test_newest_of_several_configs(folder):
    (folder / 'other.py').write_text(CONFIG)
    os.utime(folder / 'other.py', (0, 0))
    assert read_work_dir(folder).name == 'mine'


def test_results_of_a_test(folder):
    for day, score in ((1, 30.0), (2, 40.0)):
        start = write_log(folder, f'2025010{day}_100000', [])
        (start / f'{start.name}.json').write_text(json.dumps({'mIoU': score}))
    assert read_work_dir(folder).results == {'mIoU': 40.0}


def test_checkpoint(folder):
    assert read_work_dir(folder).checkpoint is None
    pointer = folder / 'last_checkpoint'
    pointer.write_text('/nowhere/iter_1.pth')
    assert read_work_dir(folder).checkpoint is None
    (folder / 'iter_1.pth').touch()
    assert read_work_dir(folder).checkpoint == folder / 'iter_1.pth'


def test_checkpoint_of_a_test_is_in_its_config(folder):
    text = (folder / 'mine.py').read_text().replace('None', "'there.pth'")
    (folder / 'mine.py').write_text(text)
    assert read_work_dir(folder).checkpoint == Path('there.pth')
    # but what a training starts from is not what it came to
    write_log(folder, '20250101_100000', [train_record(10), val_record(10, 1.0)])
    assert read_work_dir(folder).checkpoint is None


def test_generated_scenes_are_recognised(folder):
    assert not read_work_dir(folder).generated
    (folder / 'data').mkdir()
    (folder / 'data' / MANIFEST).touch()
    assert read_work_dir(folder).generated


def test_what_is_no_work_dir_is_refused(tmp_path):
    with pytest.raises(WorkDirError, match='no folder'):
        read_work_dir(tmp_path / 'missing')
    with pytest.raises(WorkDirError, match=r'tools/train\.py'):
        read_work_dir(tmp_path)

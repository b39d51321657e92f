"""--boundary and --out of tools/test.py, whatever a config evaluates; metrics of the wrong task."""

import cv2
import numpy as np
import pytest
from helpers import CONFIGS

from mmbixt.evaluation import BoundaryIoUMetric
from mmbixt.evaluation.config_check import WrongMetricError, check_metrics
from mmbixt.evaluation.sums import read_sums

SEGMENTOR = CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py'


@pytest.mark.usefixtures('in_project')
def test_predictions_and_counts_with_the_boundary_metric_alone(within):
    """In place of mmseg's metric, asked for a second time on the command line; the config says
    where the counts go."""
    options = ['--boundary', '--out', 'maps', '--work-dir', 'run']
    done = within('test.py', 'mine.py', 'mine.pth', *options)
    assert done.returncode == 0, done.stderr
    assert 'Boundary (band3px)' in done.stdout + done.stderr
    counted = read_sums('counts.npz')
    assert counted.images == [f'scene_{i}.jpg' for i in range(5)]
    # numbered from 1, as mmseg's own metric writes them
    labels = [cv2.imread(f'maps/scene_{i}.png', cv2.IMREAD_UNCHANGED) - 1 for i in range(5)]
    predicted = [np.bincount(one.ravel(), minlength=3) for one in labels]
    np.testing.assert_array_equal(counted.counts['all/predicted'], predicted)


@pytest.mark.parametrize('tool', ['train.py', 'test.py'])
def test_metric_of_the_wrong_task_is_refused_before_anything_is_built(tool, tmp_path, within):
    (tmp_path / 'mine.py').write_text(
        f"_base_ = '{SEGMENTOR}'\nval_evaluator = [dict(type='mmbixt.BoundaryCocoMetric')]\n"
        'test_evaluator = val_evaluator\n'
    )
    done = within(tool, tmp_path / 'mine.py', *['nowhere.pth'] * (tool == 'test.py'))
    assert done.returncode == 1
    assert done.stderr.startswith('WrongMetricError: ')
    assert 'Take mmbixt.BoundaryIoUMetric' in done.stderr


@pytest.mark.parametrize(
    ('scope', 'metric', 'right'),
    [
        ('mmdet', 'mmbixt.BoundaryIoUMetric', 'mmbixt.BoundaryCocoMetric'),
        ('mmdet', BoundaryIoUMetric, 'mmbixt.BoundaryCocoMetric'),
        ('mmdet', 'mmseg.IoUMetric', 'CocoMetric'),
        ('mmdet', 'IoUMetric', 'CocoMetric'),
        ('mmdet', 'mmdet.IoUMetric', None),
        ('mmseg', 'mmdet.CocoMetric', 'IoUMetric'),
        ('mmseg', 'mmbixt.BoundaryIoUMetric', None),
        ('mine', 'mmbixt.BoundaryIoUMetric', None),
        (None, 'IoUMetric', None),
    ],
)
def test_right_metric_is_named(scope, metric, right):
    for evaluator in (dict(type=metric), [dict(type=metric)], dict(metrics=[dict(type=metric)])):
        cfg = dict(default_scope=scope, val_evaluator=evaluator, test_evaluator=dict(type='Other'))
        check_metrics(cfg, ('test',))
        if right is None:
            check_metrics(cfg, ('train', 'val', 'test'))
            continue
        with pytest.raises(WrongMetricError, match=rf'val_evaluator has .*Metric, .* Take {right}'):
            check_metrics(cfg, ('val',))

"""--boundary and --out of tools/test.py, whatever a config evaluates; metrics of the wrong task."""

import runpy
from argparse import Namespace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmbixt.evaluation.config_check import WrongMetricError, check_metrics
from mmbixt.evaluation.sums import read_sums

ROOT = Path(__file__).parents[2]
SEGMENTOR = ROOT / 'configs/bixt/semfpn_bixt_ti_ade20k.py'
TOOL = runpy.run_path(str(ROOT / 'tools/test.py'))


CONFIG = f"""
_base_ = '{SEGMENTOR}'
batch_norm = dict(type='BN')
model = dict(
    backbone=dict(init_cfg=None),
    neck=[dict(type='FPN', in_channels=[192] * 4, out_channels=8, num_outs=4)],
    decode_head=dict(in_channels=[8] * 4, channels=8, num_classes=3, norm_cfg=batch_norm),
)
test_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(
        _delete_=True,
        type='BaseSegDataset',
        metainfo=dict(classes=('sky', 'sea', 'sand')),
        data_prefix=dict(img_path='images', seg_map_path='labels'),
        img_suffix='.png',
        reduce_zero_label=True,
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations', reduce_zero_label=True),
            dict(type='PackSegInputs'),
        ],
    ),
)
test_evaluator = [dict(type='mmbixt.BoundaryIoUMetric')]
"""


def test_predictions_and_counts_with_the_boundary_metric_alone(tmp_path, monkeypatch, within):
    """In place of mmseg's metric, and asked for a second time on the command line."""
    monkeypatch.chdir(tmp_path)
    for folder in ('images', 'labels'):
        Path(folder).mkdir()
        for i, name in enumerate('ab', 1):
            cv2.imwrite(f'{folder}/{name}.png', np.full((32, 48), i, np.uint8))
    Path('mine.py').write_text(CONFIG)
    init_default_scope('mmseg')
    model = MODELS.build(Config.fromfile('mine.py').model)
    torch.save(dict(state_dict=model.state_dict()), 'mine.pth')
    options = ['--boundary', '--out', 'maps', '--work-dir', 'run']
    done = within('test.py', 'mine.py', 'mine.pth', *options)
    assert done.returncode == 0, done.stderr
    assert 'Boundary (band3px)' in done.stdout + done.stderr
    counted = read_sums('run/boundary.npz')
    assert counted.images == ['a.png', 'b.png']
    # numbered from 1, as mmseg's own metric writes them
    labels = [cv2.imread(f'maps/{name}.png', cv2.IMREAD_UNCHANGED) - 1 for name in 'ab']
    predicted = [np.bincount(of_image.ravel(), minlength=3) for of_image in labels]
    np.testing.assert_array_equal(counted.counts['all/predicted'], predicted)


@pytest.mark.parametrize(
    ('scope', 'evaluators', 'expected'),
    [
        ('mmseg', [dict(type='IoUMetric')], ['IoUMetric', 'mmbixt.BoundaryIoUMetric']),
        ('mmseg', [dict(type='mmbixt.BoundaryIoUMetric')], ['mmbixt.BoundaryIoUMetric']),
        ('mmdet', [dict(type='CocoMetric', metric=['segm'])], ['mmbixt.BoundaryCocoMetric']),
        (
            'mmdet',
            [dict(type='CocoMetric'), dict(type='mmbixt.BoundaryCocoMetric', metric=[])],
            ['CocoMetric', 'mmbixt.BoundaryCocoMetric'],
        ),
    ],
)
def test_boundaries_are_evaluated_once(scope, evaluators, expected):
    cfg = Config(dict(default_scope=scope, work_dir='run', test_evaluator=evaluators))
    TOOL['evaluate_boundaries'](cfg, Namespace(config='mine.py'))
    assert [evaluator.type for evaluator in cfg.test_evaluator] == expected
    if scope == 'mmseg':
        assert cfg.test_evaluator[-1].sums_file == 'run/boundary.npz'


def test_counts_go_where_the_config_says():
    metric = dict(type='mmbixt.BoundaryIoUMetric', sums_file='mine.npz')
    cfg = Config(dict(default_scope='mmseg', work_dir='run', test_evaluator=metric))
    TOOL['evaluate_boundaries'](cfg, Namespace(config='mine.py'))
    assert cfg.test_evaluator == [metric]


@pytest.mark.parametrize('tool', ['train.py', 'test.py'])
def test_metric_of_the_wrong_task_is_refused_before_anything_is_built(tool, tmp_path, within):
    (tmp_path / 'mine.py').write_text(
        f"_base_ = '{SEGMENTOR}'\nval_evaluator = [dict(type='mmbixt.BoundaryCocoMetric')]\n"
        'test_evaluator = val_evaluator\n'
    )
    done = within(tool, tmp_path / 'mine.py', *['nowhere.pth'] * (tool == 'test.py'))
    assert done.returncode == 1
    assert done.stderr.startswith('WrongMetricError: ')
    assert 'mmbixt.BoundaryCocoMetric, but this is a config of mmseg' in done.stderr
    assert done.stderr.endswith('Take mmbixt.BoundaryIoUMetric, beside or in place of IoUMetric.\n')


@pytest.mark.parametrize(
    ('scope', 'metric', 'right'),
    [
        ('mmdet', 'mmbixt.BoundaryIoUMetric', 'mmbixt.BoundaryCocoMetric'),
        ('mmdet', 'mmseg.IoUMetric', 'CocoMetric'),
        ('mmdet', 'IoUMetric', 'CocoMetric'),
        ('mmdet', 'CocoMetric', None),
        ('mmdet', 'mmdet.IoUMetric', None),
        ('mmdet', 'mine.IoUMetric', None),
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
        with pytest.raises(WrongMetricError, match=rf'val_evaluator has {metric}, .* Take {right}'):
            check_metrics(cfg, ('val',))


def test_metric_that_is_given_as_a_class():
    from mmbixt.evaluation import BoundaryIoUMetric

    cfg = dict(default_scope='mmdet', val_evaluator=dict(type=BoundaryIoUMetric))
    with pytest.raises(WrongMetricError, match=r'has mmbixt\.BoundaryIoUMetric'):
        check_metrics(cfg, ('val',))

"""What is said of data sets, their labels, classes and colours."""

import copy
import re

import cv2
import numpy as np
import pytest
from checking import CLASSES, STEPS, found
from mmseg.datasets.transforms import PackSegInputs
from PIL import Image

from mmbixt.check.classes import name_problems


def test_labels_of_the_first_images(cfg, root):
    labels = np.full((64, 80), 7, np.uint8)
    Image.fromarray(labels).save(root / 'labels/2.png')
    (problem,) = found(cfg)[0]  # once, although both splits have it
    assert 'labels/2.png has the ids 7 (5,120 pixels), where 0 to 2 are classes' in problem
    assert problem.endswith('(1 of the first 3 images are bad)')
    cfg.default_hooks.sample_check.on_bad = 'skip'
    problems, notes = found(cfg)
    assert problems == notes == [problem]  # validation leaves nothing out


class Convert:
    """Colours (BGR) to labels."""

    def __call__(self, results):
        results['gt_seg_map'] = results['gt_seg_map'][..., 2].astype(int) // 100
        return results


class Gamma:
    def __call__(self, results):
        results['img'] = results['img'] ** 0.5
        return results


def test_labels_that_a_transform_of_a_project_converts(cfg, root):
    paths = sorted((root / 'labels').iterdir())
    for path in paths:
        Image.new('RGB', (80, 64), (200, 0, 0)).save(path)
    cfg.train_dataloader.dataset.pipeline = [*STEPS[:2], dict(type=Convert), *STEPS[2:]]
    cfg.val_dataloader = cfg.train_dataloader
    assert found(cfg) == ([], [])
    Image.new('RGB', (80, 64), (255, 0, 0)).save(paths[0])
    Image.new('RGB', (80, 64), (0, 0, 0)).save(paths[1])
    cfg.train_dataloader.dataset.metainfo = cfg.val_dataloader.dataset.metainfo = {
        'classes': CLASSES[:2]
    }
    cfg.model.decode_head.num_classes = 2
    (problem,) = found(cfg)[0]
    assert 'labels/0.png has the ids 2 (5,120 pixels)' in problem
    assert '(2 of the first 3 images are bad)' in problem
    Image.new('RGB', (40, 64)).save(paths[0])
    assert 'labels/0.png is for 40 x 64 pixels' in found(cfg)[0][0]


class Pack(PackSegInputs):
    """That of a project."""


@pytest.mark.parametrize('own', [[dict(type=Gamma), STEPS[3]], [dict(type=Pack)]])
def test_labels_of_a_project_that_keeps_them(cfg, root, own):
    cfg.train_dataloader.dataset.pipeline = [*STEPS[:3], *own]
    assert found(cfg, ('train',)) == ([], [])
    Image.fromarray(np.full((64, 80), 7, np.uint8)).save(root / 'labels/2.png')
    assert 'labels/2.png has the ids 7 (5,120 pixels)' in found(cfg, ('train',))[0][0]


@pytest.mark.parametrize(
    ('names', 'said'),
    [
        (dict(classes=('road', 'tree', 'road')), "classes has 'road' twice"),
        (dict(palette=[[0, 0, 0], [0, 128, 300], [0, 0, 1]]), 'number 1, .0, 128, 300., is no col'),
        (dict(palette=[[0, 0, 0], [0, 128], [0, 0, 1]]), 'number 1, .0, 128., is no colour'),
        (dict(palette=[[0.5, 0, 0], [0, 1, 0], [0, 0, 1]]), 'number 0, .0.5, 0, 0., is no colour'),
    ],
)
def test_names_and_colours(cfg, names, said):
    cfg.train_dataloader.dataset.metainfo = dict(classes=CLASSES) | names
    (problem,) = found(cfg, ('train',))[0]
    assert re.search(said, problem)


def test_classes_in_another_order(cfg):
    cfg.val_dataloader = copy.deepcopy(cfg.train_dataloader)
    cfg.val_dataloader.dataset.metainfo.classes = ('road', 'sky', 'tree')
    (problem,) = found(cfg)[0]
    assert problem == (
        'val_dataloader.dataset has the classes of train_dataloader in another order: number 1 is '
        "'sky', not 'tree'."
    )


def test_one_colour_for_all_classes(root):
    dataset = dict(classes=CLASSES, palette=(220, 20, 60))
    assert [*name_problems('train_dataloader.dataset', dataset)] == []


def test_label_0_and_255_with_reduce_zero_label(cfg, root):
    cfg.train_dataloader.dataset.reduce_zero_label = True
    (note,) = found(cfg, ('train',))[1]
    assert 'labels/0.png has the labels 0 and 255. Neither counts then' in note
    for path in (root / 'labels').iterdir():
        Image.new('L', (80, 64), 1).save(path)
    assert found(cfg, ('train',)) == ([], [])


def test_mean_and_std_of_8_bits_for_images_of_16(cfg, root):
    image = np.full((64, 80, 3), 40_000, np.uint16)
    for path in (root / 'images').iterdir():
        path.write_bytes(cv2.imencode('.png', image)[1])
    steps = [dict(type='LoadImageFromFile', color_type='unchanged'), *STEPS[1:]]
    cfg.train_dataloader.dataset.pipeline = steps
    (note,) = found(cfg, ('train',))[1]
    assert 'has values up to 40,000, which mean and std of model.data_preprocessor make 69' in note
    cfg.model.data_preprocessor.update(mean=[30_000] * 3, std=[10_000] * 3)
    assert found(cfg, ('train',)) == ([], [])


def test_test_images_without_labels(cfg):
    dataset = cfg.val_dataloader.dataset | dict(pipeline=[STEPS[0], STEPS[3]])
    dataset.data_prefix = dict(img_path='images')
    dataset.reduce_zero_label = True
    cfg.test_dataloader.dataset = dataset
    cfg.test_evaluator = dict(type='IoUMetric', format_only=True)
    assert found(cfg, ('test',)) == ([], [])


def test_all_parts_ignore_the_same_label(cfg):
    cfg.val_dataloader.dataset.ignore_index = 11
    cfg.val_evaluator = [dict(type='IoUMetric'), dict(type='mmbixt.BoundaryIoUMetric')]
    (note,) = found(cfg)[1]
    assert '255: model.decode_head.ignore_index, model.data_preprocessor.seg_pad_val, t' in note
    assert '; 11: val_dataloader.dataset.ignore_index)' in note

"""The stock dataset classes read the files, which are written completely or not at all. Scenes are
reproducible, and their annotations agree."""

import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from helpers import python
from mmdet.datasets import CocoDataset
from mmpretrain.datasets import ImageNet
from mmseg.datasets import ADE20KDataset
from torch.multiprocessing import start_processes

from mmbixt.evaluation import image_sums, scores
from mmbixt.sample import sample_data
from mmbixt.sample.sample_data import FIRST_SEED, write_sample_data
from mmbixt.sample.scenes import ADE_LABELS, COCO_TO_IMAGENET, imagenet_class, make_scene

TRAIN, VAL, SIZE = 4, 3, (64, 96)
LOAD = dict(type='LoadImageFromFile')


def write(root):
    return write_sample_data(root, TRAIN, VAL, *SIZE)


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    return write(tmp_path_factory.mktemp('data') / 'sample')


def contents(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob('*') if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def test_all_frameworks_read_it(root):
    scene = make_scene(FIRST_SEED['val'] + VAL - 1, *SIZE)
    ade = ADE20KDataset(
        data_root=str(root / 'ade/ADEChallengeData2016'),
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=[LOAD, dict(type='mmseg.LoadAnnotations')],
    )
    annotations = dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True)
    coco = CocoDataset(
        data_root=str(root / 'coco'),
        ann_file='annotations/instances_val2017.json',
        data_prefix=dict(img='val2017/'),
        pipeline=[LOAD, annotations],
        test_mode=True,
    )
    imagenet = ImageNet(data_root=str(root / 'imagenet'), split='val', pipeline=[LOAD])
    for dataset in (ade, coco, imagenet):
        assert len(dataset) == VAL
        assert np.abs(dataset[VAL - 1]['img'][..., ::-1].astype(int) - scene.image).mean() < 8
    # reduce_zero_label: 1 becomes class 0, and what has no label is ignored
    seg_map = ade[VAL - 1]['gt_seg_map']
    np.testing.assert_array_equal(seg_map, (scene.semantic - 1).astype(np.uint8))
    sample = coco[VAL - 1]
    names = [coco.metainfo['classes'][label] for label in sample['gt_bboxes_labels']]
    assert names == [category for category, _ in scene.instances]
    masks = sample['gt_masks']
    np.testing.assert_array_equal(masks.masks, [mask for _, mask in scene.instances])
    assert torch.equal(sample['gt_bboxes'].tensor, masks.get_bboxes('hbox').tensor)
    assert imagenet[VAL - 1]['gt_label'] == imagenet_class(scene)


def write_and_list(rank, root, listed):
    (listed / f'{rank}.txt').write_text(repr(sorted(contents(write(root)))))


def test_one_of_several_processes_writes_and_the_others_wait(root, tmp_path):
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)  # OpenCV's threads do not survive a fork; a fork saves slow imports
    try:
        new = tmp_path / 'data/sample'
        start_processes(write_and_list, (new, tmp_path), nprocs=3, start_method='fork')
    finally:
        cv2.setNumThreads(threads)
    seen = {(tmp_path / f'{rank}.txt').read_text() for rank in range(3)}
    assert seen == {repr(sorted(contents(root)))}  # each gets the folder when it is complete
    assert contents(new) == contents(root)


def test_an_interruption_leaves_nothing_and_other_files_stay(root, tmp_path, monkeypatch):
    with pytest.raises(FileExistsError, match='move it away first'):
        write_sample_data(root, TRAIN + 1, VAL, *SIZE)
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine/thesis.txt').write_text('years of work')
    with pytest.raises(FileExistsError, match='mine has other files'):
        write(tmp_path / 'mine')
    monkeypatch.setattr(sample_data, 'put_text', None)  # fails at the end of a split
    with pytest.raises(TypeError):
        write(tmp_path / 'sample')
    assert {path.name for path in tmp_path.iterdir()} == {'mine', '.sample.lock'}
    assert [path.name for path in (tmp_path / 'mine').iterdir()] == ['thesis.txt']


def test_a_seed_gives_the_same_bytes_in_any_process():
    code = (
        'import sys, zlib; from mmbixt.sample.scenes import make_scene; scene = make_scene(5); '
        'print(zlib.crc32(scene.semantic.tobytes())); '
        'assert not {"torch", "mmcv", "mmseg", "mmdet"} & set(sys.modules)'
    )
    # if this value changes, raise scenes.VERSION, so that old sample data are replaced
    assert int(python('-c', code)) == zlib.crc32(make_scene(5).semantic.tobytes()) == 757003502


@pytest.mark.parametrize('size', [(33, 64), (300, 40)])
def test_masks_agree_with_the_label_map(size):
    for scene in (make_scene(70, *size), make_scene(73, *size)):
        assert scene.image.shape == (*size, 3)
        for name in COCO_TO_IMAGENET:
            masks = [mask for category, mask in scene.instances if category == name]
            together = np.sum([np.zeros(size), *masks], axis=0)  # without overlap
            np.testing.assert_array_equal(together, scene.semantic == ADE_LABELS[name])


def test_validation_scenes_have_all_classes_and_rows_do_not_predict_them():
    train = [make_scene(FIRST_SEED['train'] + k, 96, 128) for k in range(16)]
    val = [make_scene(FIRST_SEED['val'] + k, 96, 128) for k in range(24)]
    truth, labels = (np.stack([scene.semantic for scene in scenes]) for scenes in (val, train))
    assert np.mean(truth == 0) < 0.002
    assert {*np.unique(truth)} - {0} == {*ADE_LABELS.values()}
    by_row = np.uint8([np.bincount(labels[:, row].ravel()).argmax() for row in range(96)])
    predicted = np.broadcast_to(by_row[None, :, None], truth.shape).reshape(-1, 128)
    sums = image_sums(truth.reshape(-1, 128) - 1, predicted - 1, 150, (), ())
    assert scores(sums)['all/mIoU'] < 25

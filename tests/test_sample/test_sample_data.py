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


def write(root):
    return write_sample_data(root, TRAIN, VAL, *SIZE)


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    return write(tmp_path_factory.mktemp('data') / 'sample')


@pytest.fixture(scope='module')
def scene():
    """The last scene of the validation set."""
    return make_scene(FIRST_SEED['val'] + VAL - 1, *SIZE)


def contents(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob('*') if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def test_mmseg_reads_it_as_ade20k(root, scene):
    dataset = ADE20KDataset(
        data_root=str(root / 'ade/ADEChallengeData2016'),
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=[dict(type='LoadImageFromFile'), dict(type='mmseg.LoadAnnotations')],
    )
    assert len(dataset) == VAL
    sample = dataset[-1]
    assert Path(sample['img_path']).name == 'ADE_val_00000003.jpg'
    # reduce_zero_label: 1 becomes class 0, and what has no label is ignored
    np.testing.assert_array_equal(sample['gt_seg_map'], (scene.semantic - 1).astype(np.uint8))
    assert np.abs(sample['img'][..., ::-1].astype(int) - scene.image).mean() < 8


def test_mmdet_reads_it_as_coco(root, scene):
    annotations = dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True)
    dataset = CocoDataset(
        data_root=str(root / 'coco'),
        ann_file='annotations/instances_val2017.json',
        data_prefix=dict(img='val2017/'),
        pipeline=[dict(type='LoadImageFromFile'), annotations],
        test_mode=True,
    )
    assert len(dataset) == VAL
    sample = dataset[VAL - 1]
    assert sample['img'].shape[:2] == sample['img_shape'] == SIZE
    names = [dataset.metainfo['classes'][label] for label in sample['gt_bboxes_labels']]
    assert names == [category for category, _ in scene.instances]
    masks = sample['gt_masks']
    np.testing.assert_array_equal(masks.masks, [mask for _, mask in scene.instances])
    assert torch.equal(sample['gt_bboxes'].tensor, masks.get_bboxes('hbox').tensor)


def test_mmpretrain_reads_it_as_imagenet(root, scene):
    for split, count in (('train', TRAIN), ('val', VAL)):
        pipeline = [dict(type='LoadImageFromFile')]
        dataset = ImageNet(data_root=str(root / 'imagenet'), split=split, pipeline=pipeline)
        assert len(dataset) == count
    sample = dataset[VAL - 1]
    assert Path(sample['img_path']).name == 'val_00000003.jpg'
    assert np.abs(sample['img'][..., ::-1].astype(int) - scene.image).mean() < 8
    assert sample['gt_label'] == imagenet_class(scene)


def test_existing_data_need_no_lock(root, monkeypatch):
    """So the folder may be read-only."""
    monkeypatch.setattr(sample_data, 'make_scene', None)
    monkeypatch.setattr(sample_data, 'FileLock', None)
    assert write(root) == root


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


def test_an_interruption_leaves_nothing_and_other_files_stay(tmp_path, monkeypatch):
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine/thesis.txt').write_text('years of work')
    with pytest.raises(FileExistsError, match='mine has other files'):
        write(tmp_path / 'mine')
    monkeypatch.setattr(sample_data, 'put_text', None)  # fails at the end of a split
    with pytest.raises(TypeError):
        write(tmp_path / 'sample')
    assert {path.name for path in tmp_path.iterdir()} == {'mine', '.sample.lock'}
    assert [path.name for path in (tmp_path / 'mine').iterdir()] == ['thesis.txt']


def test_scenes_of_another_number_are_not_replaced(root):
    with pytest.raises(FileExistsError, match='move it away first'):
        write_sample_data(root, TRAIN + 1, VAL, *SIZE)


def test_a_seed_gives_the_same_bytes_in_any_process():
    np.random.seed(1)
    one, other, again = (make_scene(seed, 48, 64).image.tobytes() for seed in (5, 6, 5))
    assert other != one == again
    code = (
        'import sys, zlib; from mmbixt.sample.scenes import make_scene; scene = make_scene(5); '
        'print(zlib.crc32(scene.semantic.tobytes())); '
        'assert not {"torch", "mmcv", "mmseg", "mmdet"} & set(sys.modules)'
    )
    # if this value changes, raise scenes.VERSION, so that old sample data are replaced
    assert int(python('-c', code)) == zlib.crc32(make_scene(5).semantic.tobytes()) == 757003502


@pytest.mark.parametrize('size', [(33, 64), (97, 131), (300, 40)])
@pytest.mark.parametrize('seed', [70, 73])
def test_types_and_shapes_and_masks_that_agree_with_the_label_map(seed, size):
    scene = make_scene(seed, *size)
    assert scene.image.shape == (*size, 3)
    assert scene.image.dtype == scene.semantic.dtype == np.uint8
    assert set(np.unique(scene.semantic)) <= {0, *ADE_LABELS.values()}
    for name in COCO_TO_IMAGENET:
        masks = [mask for category, mask in scene.instances if category == name]
        together = np.sum([np.zeros(size), *masks], axis=0)  # without overlap
        np.testing.assert_array_equal(together, scene.semantic == ADE_LABELS[name])


def test_validation_scenes_have_all_classes_and_rows_do_not_predict_them():
    train = [make_scene(FIRST_SEED['train'] + k, 96, 128) for k in range(16)]
    val = [make_scene(FIRST_SEED['val'] + k, 96, 128) for k in range(24)]
    objects = [category for scene in val for category, _ in scene.instances]
    assert set(objects) == set(COCO_TO_IMAGENET)
    truth, labels = (np.stack([scene.semantic for scene in scenes]) for scenes in (val, train))
    assert np.mean(truth == 0) < 0.002
    assert set(np.unique(truth)) >= set(ADE_LABELS.values())
    by_row = np.uint8([np.bincount(labels[:, row].ravel()).argmax() for row in range(96)])
    predicted = np.broadcast_to(by_row[None, :, None], truth.shape).reshape(-1, 128)
    sums = image_sums(truth.reshape(-1, 128) - 1, predicted - 1, 150, (), ())
    assert scores(sums)['all/mIoU'] < 25

"""The files are what the stock dataset classes read, and are written all at once or not at all."""

import json
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmdet.datasets import CocoDataset
from mmpretrain.datasets import ImageNet
from mmseg.datasets import ADE20KDataset
from torch.multiprocessing import start_processes

from mmbixt.sample import sample_data
from mmbixt.sample.sample_data import FIRST_SEED, MANIFEST, write_sample_data
from mmbixt.sample.scenes import ADE_LABELS, imagenet_class, make_scene

TRAIN, VAL, SIZE = 4, 3, (64, 96)


def write(root):
    return write_sample_data(root, TRAIN, VAL, *SIZE)


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    return write(tmp_path_factory.mktemp('data') / 'sample')


@pytest.fixture
def stale(root, tmp_path):
    """Complete data of an older version."""
    folder = shutil.copytree(root, tmp_path / 'sample')
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, 'version': 1}))
    return folder


@pytest.fixture(scope='module')
def scene():
    """The last one of validation."""
    return make_scene(FIRST_SEED['val'] + VAL - 1, *SIZE)


def contents(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob('*') if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def assert_alone_and_equal(folder, expected):
    """With these files, and with nothing beside it but the lock."""
    assert contents(folder) == expected
    assert {path.name for path in folder.parent.iterdir()} <= {'sample', '.sample.lock'}


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
    assert dataset.metainfo['classes'][ADE_LABELS['sky'] - 1] == 'sky'
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
    sizes = [mask.sum() for _, mask in scene.instances]
    category, _ = scene.instances[np.argmax(sizes)]
    like = dict(cow='ox', boat='yawl', car='sports car', horse='sorrel', person='groom')
    assert like[category] in dataset.CLASSES[sample['gt_label']]
    assert dataset.CLASSES[imagenet_class(scene._replace(instances=[]))] == 'valley, vale'


def test_nothing_is_made_or_locked_if_it_is_there(root, monkeypatch):
    """Such as where nobody can write."""
    monkeypatch.setattr(sample_data, 'make_scene', None)
    monkeypatch.setattr(sample_data, 'FileLock', None)
    assert write(root) == root


@pytest.mark.parametrize('damage', ['half', 'manifest'])
def test_old_or_incomplete_data_is_replaced(root, stale, damage):
    if damage == 'half':
        shutil.copy(root / MANIFEST, stale)
        next((stale / 'coco/train2017').iterdir()).unlink()
    else:
        (stale / MANIFEST).write_bytes(b'')
    assert_alone_and_equal(write(stale), contents(root))


def write_and_list(rank, root, listed):
    (listed / f'{rank}.txt').write_text(repr(sorted(contents(write(root)))))


def test_of_several_processes_one_writes_and_the_others_wait(root, tmp_path):
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)  # OpenCV's threads do not survive a fork, which spares imports
    try:
        new = tmp_path / 'data/sample'
        start_processes(write_and_list, (new, tmp_path), nprocs=3, start_method='fork')
    finally:
        cv2.setNumThreads(threads)
    seen = {(tmp_path / f'{rank}.txt').read_text() for rank in range(3)}
    assert seen == {repr(sorted(contents(root)))}  # each gets the folder when it is complete
    assert_alone_and_equal(new, contents(root))


@pytest.mark.parametrize('with_manifest', [False, True])
def test_a_foreign_folder_or_file_is_left_alone(stale, tmp_path, with_manifest):
    folder = stale if with_manifest else tmp_path / 'mine'
    folder.mkdir(exist_ok=True)
    (folder / 'thesis.txt').write_text('years of work')
    before = contents(folder)
    with pytest.raises(FileExistsError, match=r'thesis\.txt'):
        write(folder)
    assert contents(folder) == before


def test_a_full_disk_gives_one_error_and_leaves_nothing(stale, monkeypatch):
    before = contents(stale)
    write_bytes, written = Path.write_bytes, []

    def until_full(path, data):
        written.append(path)
        if len(written) > 7:
            raise OSError(28, 'No space left on device')
        return write_bytes(path, data)

    monkeypatch.setattr(Path, 'write_bytes', until_full)
    with pytest.raises(OSError, match="sample': No space left on device"):
        write(stale)
    assert_alone_and_equal(stale, before)

"""The files are what the stock dataset classes read, and are written all at once or not at all."""

import json
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmdet.datasets import CocoDataset
from mmpretrain.datasets import ImageNet
from mmseg.datasets import ADE20KDataset
from pycocotools import mask as mask_api

from mmbixt.sample import sample_data
from mmbixt.sample.sample_data import FIRST_SEED, MANIFEST, write_sample_data
from mmbixt.sample.scenes import ADE_LABELS, COCO_TO_ADE, imagenet_class, make_scene

TRAIN, VAL, SIZE = 4, 3, (64, 96)


def write(root):
    return write_sample_data(root, TRAIN, VAL, *SIZE)


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    return write(tmp_path_factory.mktemp('data') / 'sample')


@pytest.fixture(scope='module')
def scene():
    """The last one of validation."""
    return make_scene(FIRST_SEED['val'] + VAL - 1, *SIZE)


def contents(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob('*') if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def visible(folder):
    """What is in a folder, without the lock."""
    return [path.name for path in folder.iterdir() if path.suffix != '.lock']


def test_mmseg_reads_it_as_ade20k(root, scene):
    pipeline = [dict(type='LoadImageFromFile'), dict(type='mmseg.LoadAnnotations')]
    for split, count in (('training', TRAIN), ('validation', VAL)):
        dataset = ADE20KDataset(
            data_root=str(root / 'ade/ADEChallengeData2016'),
            data_prefix=dict(img_path=f'images/{split}', seg_map_path=f'annotations/{split}'),
            pipeline=pipeline,
        )
        assert len(dataset) == count
    sample = dataset[-1]
    assert Path(sample['img_path']).name == 'ADE_val_00000003.jpg'
    # reduce_zero_label: 1 becomes class 0, and what has no label is ignored
    np.testing.assert_array_equal(sample['gt_seg_map'], (scene.semantic - 1).astype(np.uint8))
    assert dataset.metainfo['classes'][ADE_LABELS['sky'] - 1] == 'sky'
    assert np.abs(sample['img'][..., ::-1].astype(int) - scene.image).mean() < 8


def test_mmdet_reads_it_as_coco(root, scene):
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True),
    ]
    for split, count in (('train', TRAIN), ('val', VAL)):
        dataset = CocoDataset(
            data_root=str(root / 'coco'),
            ann_file=f'annotations/instances_{split}2017.json',
            data_prefix=dict(img=f'{split}2017/'),
            pipeline=pipeline,
            test_mode=True,
        )
        assert len(dataset) == count
    sample = dataset[VAL - 1]
    classes = dataset.metainfo['classes']
    names = [classes[label] for label in sample['gt_bboxes_labels']]
    assert names == [category for category, _ in scene.instances]
    assert len(names) > 2
    boxes, masks = sample['gt_bboxes'].numpy(), sample['gt_masks'].masks.astype(bool)
    for box, mask, (_, truth) in zip(boxes, masks, scene.instances, strict=True):
        np.testing.assert_array_equal(mask, truth)
        rows, columns = np.nonzero(truth)
        edges = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_array_equal(box, edges)


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


def test_coco_files_are_sound(root):
    for split in ('train', 'val'):
        content = json.loads((root / f'coco/annotations/instances_{split}2017.json').read_text())
        names = {category['name'] for category in content['categories']}
        assert set(COCO_TO_ADE) <= names
        assert len(names) == 80
        for image in content['images']:
            path = root / f'coco/{split}2017' / image['file_name']
            assert cv2.imread(str(path)).shape[:2] == (image['height'], image['width']) == SIZE
        numbers = [annotation['id'] for annotation in content['annotations']]
        assert len(set(numbers)) == len(numbers) > len(content['images'])


def test_runs_of_a_mask_are_cocos():
    masks = np.random.default_rng(0).random((20, 9, 13)) < 0.5
    masks[0], masks[1, 0, 0], masks[2, 0, 0], masks[3, -1, -1] = True, True, False, True
    for mask in masks:
        outline = sample_data._outline(mask)
        runs = mask_api.frPyObjects(json.loads(json.dumps(outline['segmentation'])), 9, 13)
        np.testing.assert_array_equal(mask_api.decode(runs), mask)
        assert outline['area'] == mask_api.area(runs)
        np.testing.assert_array_equal(outline['bbox'], mask_api.toBbox(runs))


def test_splits_differ_and_are_the_same_bytes_in_another_folder(root, tmp_path):
    train, val = ({p.read_bytes() for p in (root / f'coco/{s}2017').iterdir()} for s in FIRST_SEED)
    assert (len(train), len(val), len(train | val)) == (TRAIN, VAL, TRAIN + VAL)
    assert contents(write(tmp_path / 'again')) == contents(root)


def test_nothing_is_made_or_locked_if_it_is_there(root, monkeypatch):
    """Such as where nobody can write."""
    monkeypatch.setattr(sample_data, 'make_scene', None)
    monkeypatch.setattr(sample_data, 'FileLock', None)
    assert write(root) == root


@pytest.mark.parametrize('damage', ['version', 'half', 'size', 'manifest'])
def test_old_or_incomplete_data_is_replaced(root, tmp_path, damage):
    height = 32 if damage == 'size' else SIZE[0]
    stale = write_sample_data(tmp_path / 'sample', TRAIN, VAL, height, SIZE[1])
    if damage == 'version':
        manifest = json.loads((stale / MANIFEST).read_text())
        (stale / MANIFEST).write_text(json.dumps({**manifest, 'version': 1}))
    elif damage == 'manifest':
        (stale / MANIFEST).write_bytes(b'')
    elif damage == 'half':
        next((stale / 'coco/train2017').iterdir()).unlink()
    assert contents(write(stale)) == contents(root)
    assert visible(tmp_path) == ['sample']


def test_of_several_processes_one_writes_and_the_others_wait(root, tmp_path):
    code = (
        'import sys, time; from mmbixt.sample.sample_data import write_sample_data; '
        'time.sleep(max(0, float(sys.argv[2]) - time.time())); '
        f'print(write_sample_data(sys.argv[1], {TRAIN}, {VAL}, *{SIZE}))'
    )
    command = [sys.executable, '-c', code, str(tmp_path / 'sample'), str(time.time() + 3)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    # each gets the folder when it is complete, one says that it makes scenes
    assert {lines[-1] for lines in said} == {str(tmp_path / 'sample')}
    assert sorted(len(lines) for lines in said) == [1, 1, 3]
    assert contents(tmp_path / 'sample') == contents(root)
    assert visible(tmp_path) == ['sample']


@pytest.mark.parametrize('with_manifest', [False, True])
def test_a_foreign_folder_is_left_alone(tmp_path, with_manifest):
    folder = tmp_path / 'sample'
    if with_manifest:
        write_sample_data(folder, 2, 1, 32, 48)
    folder.mkdir(exist_ok=True)
    (folder / 'thesis.txt').write_text('years of work')
    before = contents(folder)
    with pytest.raises(FileExistsError, match=r'thesis\.txt'):
        write(folder)
    assert contents(folder) == before


def test_a_full_disk_gives_one_error_and_leaves_nothing(tmp_path, monkeypatch):
    kept = write_sample_data(tmp_path / 'sample', 2, 1, 32, 48)
    before = contents(kept)
    write_bytes, written = Path.write_bytes, []

    def until_full(path, data):
        written.append(path)
        if len(written) > 7:
            raise OSError(28, 'No space left on device')
        return write_bytes(path, data)

    monkeypatch.setattr(Path, 'write_bytes', until_full)
    with pytest.raises(OSError, match="sample': No space left on device"):
        write(tmp_path / 'sample')
    monkeypatch.undo()
    assert contents(kept) == before
    assert visible(tmp_path) == ['sample']


def test_a_file_in_the_way_is_left_alone(tmp_path):
    (tmp_path / 'file').write_text('mine')
    with pytest.raises(FileExistsError, match=r"move '.*/file' away first"):
        write(tmp_path / 'file')
    with pytest.raises(OSError, match='cannot write the sample data to'):
        write(tmp_path / 'file/sample')

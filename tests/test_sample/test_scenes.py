"""Scenes are reproducible, their annotations agree, and they cannot be solved by colour alone."""

import subprocess
import sys
import zlib

import numpy as np
import pytest

from mmbixt.evaluation import image_sums, scores
from mmbixt.sample.sample_data import FIRST_SEED
from mmbixt.sample.scenes import ADE_LABELS, COCO_TO_ADE, make_scene


def test_a_seed_gives_the_same_bytes_whatever_else_is_done_and_in_another_process():
    np.random.seed(1)
    one, other, again = (make_scene(seed, 48, 64).image.tobytes() for seed in (5, 6, 5))
    assert other != one == again
    code = (
        'import sys, zlib; from mmbixt.sample.scenes import make_scene; scene = make_scene(5); '
        'print(zlib.crc32(scene.semantic.tobytes())); '
        'assert not {"torch", "mmcv", "mmseg", "mmdet"} & set(sys.modules)'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    # another value means other sample data: then raise scenes.VERSION, so that old ones are renewed
    assert int(done.stdout) == zlib.crc32(make_scene(5).semantic.tobytes()) == 135892738


@pytest.mark.parametrize('size', [(33, 64), (97, 131), (300, 40)])
@pytest.mark.parametrize('seed', [70, 73])
def test_types_and_shapes_and_masks_that_are_part_of_the_label_map(seed, size):
    scene = make_scene(seed, *size)
    assert scene.image.shape == (*size, 3)
    assert scene.image.dtype == scene.semantic.dtype == np.uint8
    assert set(np.unique(scene.semantic)) <= {0, *ADE_LABELS.values()}
    for name in set(COCO_TO_ADE.values()):
        masks = [mask for category, mask in scene.instances if COCO_TO_ADE[category] == name]
        together = np.sum([np.zeros(size), *masks], axis=0)  # without overlap
        np.testing.assert_array_equal(together, scene.semantic == ADE_LABELS[name])


def mean_iou(predicted, truth) -> float:
    """Of label maps of ADE20K's files, in per cent."""
    predicted, truth = (np.uint8(labels - 1).reshape(-1, 128) for labels in (predicted, truth))
    return scores(image_sums(truth, predicted, 150, (), ()))['all/mIoU']


def test_validation_scenes_show_everything_and_are_not_solved_by_row_or_colour():
    train = [make_scene(FIRST_SEED['train'] + k, 96, 128) for k in range(16)]
    val = [make_scene(FIRST_SEED['val'] + k, 96, 128) for k in range(24)]
    objects = [category for scene in val for category, _ in scene.instances]
    assert set(objects) == set(COCO_TO_ADE)
    truth, labels = (np.stack([scene.semantic for scene in scenes]) for scenes in (val, train))
    assert np.mean(truth == 0) < 0.002
    assert set(np.unique(truth)) >= set(ADE_LABELS.values())
    by_row = np.uint8([np.bincount(labels[:, row].ravel()).argmax() for row in range(96)])
    assert mean_iou(np.broadcast_to(by_row[None, :, None], truth.shape), truth) < 15
    bins, known = (
        np.stack([scene.image for scene in scenes]).astype(int) // 16 @ (256, 16, 1)
        for scenes in (train, val)
    )
    votes = np.zeros((16**3, 151), int)
    np.add.at(votes, (bins, labels), 1)
    votes[:, 0] = 0
    votes[:, ADE_LABELS['sky']] += 1  # of colours never seen
    assert mean_iou(np.uint8(votes.argmax(axis=1)[known]), truth) < 25


def test_names_and_labels_are_those_of_ade20k():
    ade = pytest.importorskip('mmseg.datasets').ADE20KDataset.METAINFO['classes']
    assert {name: ade.index(name) + 1 for name in ADE_LABELS} == ADE_LABELS

"""The stock dataset classes read the files."""

import numpy as np
import torch
from mmdet.datasets import CocoDataset
from mmpretrain.datasets import ImageNet
from mmseg.datasets import ADE20KDataset

from mmbixt.scenes.files import FIRST_SEED, write_scenes
from mmbixt.scenes.scene import imagenet_class, make_scene

VAL, SIZE = 3, (64, 96)
LOAD = dict(type='LoadImageFromFile')


def test_all_frameworks_read_it(tmp_path):
    root = write_scenes(tmp_path / 'sample', 1, VAL, *SIZE)
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

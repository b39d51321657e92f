"""A small config, for the tests of the check of configs."""

from running import fresh_mmengine

from mmbixt.check.config import find_problems

TRAINING = 'train', 'val'
CLASSES = ('road', 'tree', 'sky')
SMALL = dict(_delete_=True, embed_dims=(64, 128, 256, 512), depths=(1, 1, 1, 1))
STEPS = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomCrop', crop_size=(64, 64)),
    dict(type='PackSegInputs'),
]


def found(cfg, splits=TRAINING):
    with fresh_mmengine():
        return find_problems(cfg, splits)

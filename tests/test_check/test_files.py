"""Files that a config names and that are missing."""

import pytest

from mmbixt.check.files import check_files
from mmbixt.checkpoints.errors import CheckpointFileError
from mmbixt.config import ConfigError

ADE = dict(
    type='ADE20KDataset',
    data_root='data/ade/ADEChallengeData2016',
    data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
)
COCO = dict(
    type='CocoDataset',
    data_root='data/coco/',
    ann_file='annotations/instances_train2017.json',
    data_prefix=dict(img='train2017/'),
)
IMAGENET = dict(type='ImageNet', data_root='data/imagenet', split='train')


def test_missing_data_and_their_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = dict(type='ConcatDataset', datasets=[ADE, COCO, IMAGENET])
    cfg = dict(train_dataloader=dict(dataset=dataset), val_dataloader=None)
    with pytest.raises(ConfigError) as caught:
        check_files(cfg, ('train', 'val'))
    for text in (
        'train_dataloader.dataset.datasets.1 (CocoDataset): ',
        'set train_dataloader.dataset.datasets.1.data_root',
        'images/training does not exist',
        'annotations/training does not exist',
        'train2017 does not exist',
        'instances_train2017.json does not exist',
        'data/imagenet/train does not exist',
        '--sample tries the config without it',
    ):
        assert text in str(caught.value)
    check_files(cfg, ('val', 'test'))


def test_missing_weights():
    init = dict(type='Pretrained', checkpoint='lost.pth')
    cfg = dict(model=dict(backbone=dict(type='mmbixt.BiXT', init_cfg=init)))
    with pytest.raises(ConfigError, match=r'init_cfg of mmbixt.BiXT: the checkpoint lost.pth does'):
        check_files(cfg, ())
    with pytest.raises(ConfigError, match=r'load_from: the checkpoint lost.pth does not exist'):
        check_files(dict(load_from='lost.pth'), ())
    with pytest.raises(CheckpointFileError, match=r'Similar names: .*xcit://tiny12-p16'):
        check_files(dict(load_from='xcit://tiny12-p61'), ())
    check_files(dict(load_from='https://host/x.pth'), ())

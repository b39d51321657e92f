import copy

import pytest
from mmengine.config import Config

from mmbixt.sample.sample_config import NoSampleError, use_sample_data

PRETRAINED = dict(type='Pretrained', checkpoint='weights.pth')
SEGMENTOR = dict(
    model=dict(
        type='EncoderDecoder',
        data_preprocessor=dict(size=(512, 512)),
        pretrained='open-mmlab://resnet50_v1c',
        backbone=dict(frozen_stages=1, norm_eval=True, init_cfg=PRETRAINED),
        neck=dict(norm_cfg=dict(type='SyncBN'), init_cfg=dict(type='Xavier')),
        decode_head=dict(anchors=dict(scales=[8])),
        test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
    ),
    train_pipeline=[dict(type='RandomCrop', crop_size=(512, 512))],
    optim_wrapper=dict(optimizer=dict(type='AdamW', lr=6e-5, weight_decay=0.01)),
    train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=12),
    param_scheduler=[dict(type='MultiStepLR', milestones=[8, 11])],
    default_hooks=dict(checkpoint=dict(interval=1), logger=dict(interval=50)),
    log_processor=dict(by_epoch=True),
    load_from='model.pth',
    sync_bn='torch',
)
DATASET = dict(
    type='ADE20KDataset',
    data_root='data/ade/ADEChallengeData2016',
    pipeline=[dict(type='Resize', scale=(2048, 512), ratio_range=(0.5, 2.0))],
)
for split in ('train', 'val', 'test'):
    SEGMENTOR[f'{split}_dataloader'] = dict(batch_size=16, dataset=DATASET)


@pytest.fixture
def written(monkeypatch, tmp_path):
    """As if the scenes were written; returns their folder."""
    monkeypatch.setattr('mmbixt.sample.sample_config.write_sample_data', lambda root: tmp_path)
    return tmp_path


@pytest.fixture
def cfg():
    return Config(copy.deepcopy(SEGMENTOR))


def test_changes_what_it_must_and_nothing_else(written, cfg):
    changes = use_sample_data(cfg)
    assert 'model.pth, open-mmlab://resnet50_v1c, weights.pth' in changes[3]
    dataset = cfg.val_dataloader.dataset
    assert dataset.data_root == str(written / 'ade/ADEChallengeData2016')
    assert dataset.pipeline[0] == dict(type='Resize', scale=(512, 128), ratio_range=(1.0, 1.25))
    assert cfg.train_pipeline[0].crop_size == (128, 128)
    assert cfg.model.data_preprocessor.size == (128, 128)
    assert cfg.model.test_cfg == dict(mode='slide', crop_size=(128, 128), stride=(85, 85))
    assert cfg.model.decode_head.anchors.scales == [8]
    assert cfg.model.neck.norm_cfg.type == 'BN'
    assert cfg.model.neck.init_cfg.type == 'Xavier'
    assert cfg.model.backbone == dict(frozen_stages=-1, norm_eval=False, init_cfg=None)
    assert cfg.load_from is None
    assert 'sync_bn' not in cfg
    assert cfg.optim_wrapper.optimizer.weight_decay == 0.01
    assert cfg.train_cfg.type == 'IterBasedTrainLoop'
    assert cfg.param_scheduler[-1].end == cfg.train_cfg.max_iters


def test_annotations_of_coco_and_learning_rate_of_sgd(written, cfg):
    cfg.val_evaluator = dict(ann_file='data/coco/annotations/instances_val2017.json')
    cfg.optim_wrapper.optimizer = dict(type='SGD', lr=0.02)
    use_sample_data(cfg)
    assert cfg.val_evaluator.ann_file == str(written / 'coco/annotations/instances_val2017.json')
    assert cfg.optim_wrapper.optimizer.lr == 0.02 * cfg.train_dataloader.batch_size / 16


def test_classifier(written, cfg):
    cfg.default_scope = 'mmpretrain'
    cfg.pop('log_processor')
    crop = dict(type='RandomResizedCrop', scale=224, crop_ratio_range=(0.08, 1.0))
    for split in ('train', 'val', 'test'):
        dataset = dict(type='ImageNet', data_root='data/imagenet', pipeline=[dict(crop)])
        cfg[f'{split}_dataloader']['dataset'] = dataset
    cfg.custom_hooks = [dict(type='EMAHook', momentum=1e-4, begin_epoch=5)]
    assert use_sample_data(cfg)[-2].startswith('average: ')
    assert cfg.train_dataloader.dataset.data_root == str(written / 'imagenet')
    assert cfg.train_dataloader.dataset.pipeline == [{**crop, 'scale': 112}]
    assert cfg.train_dataloader.batch_size == 8
    assert cfg.custom_hooks == [dict(type='EMAHook', momentum=0.01)]
    assert cfg.log_processor == dict(by_epoch=False)


def test_other_datasets_and_parts_of_configs_are_refused(cfg):
    cfg.train_dataloader.dataset.type = 'CityscapesDataset'
    with pytest.raises(NoSampleError, match='none for CityscapesDataset'):
        use_sample_data(cfg)
    cfg.pop('model')
    with pytest.raises(NoSampleError, match='this one has no model'):
        use_sample_data(cfg)

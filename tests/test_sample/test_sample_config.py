import pytest
from helpers import CONFIGS
from mmengine.config import Config

from mmbixt.config import ConfigError
from mmbixt.sample.sample_config import use_few_steps, use_sample_data


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Replaces the writing of scenes; returns their folder."""
    monkeypatch.setattr('mmbixt.sample.sample_config.write_sample_data', lambda root: tmp_path)
    return tmp_path


@pytest.fixture
def cfg():
    """A config with all settings that --sample must change."""
    cfg = Config.fromfile(CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py')
    pretrained = dict(type='Pretrained', checkpoint='weights.pth')
    changed = {
        'model.pretrained': 'open-mmlab://resnet50_v1c',
        'model.backbone': dict(frozen_stages=1, norm_eval=True, init_cfg=pretrained),
        'model.decode_head': dict(anchors=dict(scales=[8])),
        'model.test_cfg': dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
        'train_cfg': dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=12),
        'load_from': 'model.pth',
    }
    cfg.merge_from_dict(changed)
    return cfg


def test_changes_only_what_is_necessary(written, cfg):
    cfg.test_dataloader = [cfg.test_dataloader]  # which training does not use
    changes = use_sample_data(cfg)
    assert 'model.pth, open-mmlab://resnet50_v1c, weights.pth' in changes[3]
    dataset = cfg.val_dataloader.dataset
    assert dataset.data_root == str(written / 'ade/ADEChallengeData2016')
    assert cfg.test_dataloader[0].num_workers == 1
    assert dataset.pipeline[1] == dict(type='Resize', scale=(768, 192), keep_ratio=True)
    assert cfg.train_dataloader.dataset.pipeline[4].crop_size == (128, 128)
    assert cfg.model.data_preprocessor.size == (128, 128)
    assert cfg.model.test_cfg == dict(mode='slide', crop_size=(128, 128), stride=(85, 85))
    assert cfg.model.decode_head.anchors.scales == [8]
    backbone = cfg.model.backbone
    assert (backbone.frozen_stages, backbone.norm_eval, backbone.init_cfg) == (-1, False, None)
    assert cfg.load_from is None
    assert cfg.optim_wrapper.optimizer.weight_decay == 0.01
    assert cfg.param_scheduler[-1].end == cfg.train_cfg.max_iters


def test_annotations_of_coco_and_learning_rate_of_sgd(written, cfg):
    cfg.val_evaluator = dict(ann_file='data/coco/annotations/instances_val2017.json')
    cfg.optim_wrapper.optimizer = dict(type='SGD', lr=0.02)
    use_sample_data(cfg)
    assert cfg.val_evaluator.ann_file == str(written / 'coco/annotations/instances_val2017.json')
    assert cfg.optim_wrapper.optimizer.lr == 0.02 * 4 / 32  # in proportion to the batch size


def test_cifar100(written):
    """It is replaced by ImageNet, which has the classes of the scenes."""
    cfg = Config.fromfile(CONFIGS / 'bisa_swin/bisa_swin_t_cifar100.py')
    assert use_sample_data(cfg)[1].startswith('classes: the 1000 of ImageNet')
    for split in ('train', 'val'):
        dataset = cfg[f'{split}_dataloader'].dataset
        assert (dataset.type, dataset.split) == ('ImageNet', split)
        assert dataset.data_root == str(written / 'imagenet')
        assert [step.type for step in dataset.pipeline].count('LoadImageFromFile') == 1
    assert cfg.test_dataloader == cfg.val_dataloader
    assert (cfg.model.head.num_classes, cfg.data_preprocessor.num_classes) == (1000, 1000)


@pytest.mark.parametrize(
    ('scope', 'dataset', 'message'),
    [
        ('mmseg', dict(type='CityscapesDataset'), 'This config has CityscapesDataset of mmseg'),
        ('mmpose', dict(type='CocoDataset'), 'This config has CocoDataset of mmpose'),
        ('mmseg', dict(_delete_=True, type='Mine'), 'This config has no dataset of mmseg'),
    ],
)
def test_other_frameworks_and_datasets_are_refused_before_drawing(
    tmp_path, cfg, scope, dataset, message
):
    loaders = ('train_dataloader', 'val_dataloader', 'test_dataloader')
    cfg.merge_from_dict({f'{loader}.dataset': dataset for loader in loaders})
    cfg.default_scope = scope
    with pytest.raises(ConfigError, match=message):
        use_sample_data(cfg, tmp_path / 'sample')
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    'name',
    [
        'bixt/semfpn_bixt_ti_ade20k',
        'biformer/retinanet_biformer_t_1x_coco',
        'xcit/xcit_t12_p16_in1k',
    ],
)
def test_few_steps_on_own_data(name):
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    root = cfg.train_dataloader.dataset.data_root
    cfg.visualizer.vis_backends = [dict(type='WandbVisBackend')]
    use_few_steps(cfg, 3)
    assert cfg.train_dataloader.dataset.data_root == root
    assert cfg.val_dataloader.dataset.indices == 3
    assert cfg.train_cfg == dict(type='IterBasedTrainLoop', max_iters=3, val_interval=3)
    assert cfg.train_dataloader.batch_size == 2
    assert cfg.default_hooks.logger.interval == 1
    assert cfg.default_hooks.checkpoint is cfg.model.backbone.get('init_cfg') is None
    assert cfg.visualizer.vis_backends == [dict(type='LocalVisBackend')]
    if cfg.default_scope == 'mmseg':
        assert cfg.model.data_preprocessor.size == (128, 128)
        cfg.model.data_preprocessor.size = (96, 96)
        before = cfg.train_dataloader.dataset.to_dict()
        use_few_steps(cfg, 3)  # small images keep their size
        assert cfg.train_dataloader.dataset == before

import pytest
from helpers import CONFIGS
from mmengine.config import Config

from mmbixt.config import ConfigError
from mmbixt.sample.sample_config import use_few_steps, use_sample_data


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


def test_changes_only_what_is_necessary(cfg, tmp_path, monkeypatch):
    monkeypatch.setattr('mmbixt.sample.sample_config.write_sample_data', lambda root: tmp_path)
    cfg.test_dataloader = [cfg.test_dataloader]  # which training does not use
    changes = use_sample_data(cfg)
    assert 'model.pth, open-mmlab://resnet50_v1c, weights.pth' in changes[3]
    dataset = cfg.val_dataloader.dataset
    assert dataset.data_root == str(tmp_path / 'ade/ADEChallengeData2016')
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


def test_other_datasets_are_refused(cfg):
    loaders = ('train_dataloader', 'val_dataloader', 'test_dataloader')
    cfg.merge_from_dict({f'{loader}.dataset.type': 'CityscapesDataset' for loader in loaders})
    with pytest.raises(ConfigError, match='This config has CityscapesDataset of mmseg'):
        use_sample_data(cfg)


def test_few_steps_on_own_data():
    cfg = Config.fromfile(CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py')
    root = cfg.train_dataloader.dataset.data_root
    cfg.visualizer.vis_backends = [dict(type='WandbVisBackend')]
    use_few_steps(cfg, 3)
    assert cfg.train_dataloader.dataset.data_root == root
    assert cfg.val_dataloader.dataset.indices == 3
    assert cfg.train_cfg == dict(type='IterBasedTrainLoop', max_iters=3, val_interval=3)
    assert cfg.train_dataloader.batch_size == 2
    assert cfg.default_hooks.logger.interval == 1
    assert cfg.param_scheduler[0].start_factor == 1  # the whole rate from the first iteration
    assert cfg.default_hooks.checkpoint is cfg.model.backbone.get('init_cfg') is None
    assert cfg.visualizer.vis_backends == [dict(type='LocalVisBackend')]
    assert cfg.model.data_preprocessor.size == (128, 128)

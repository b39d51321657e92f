import pytest
from helpers import CONFIGS
from mmengine.config import Config

from mmbixt.config import ConfigError
from mmbixt.sample.sample_config import use_sample_data


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Replaces the writing of scenes; returns their folder."""
    monkeypatch.setattr('mmbixt.sample.sample_config.write_sample_data', lambda root: tmp_path)
    return tmp_path


def test_changes_only_what_is_necessary(written):
    cfg = Config.fromfile(CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py')
    changed = {
        'model.pretrained': 'open-mmlab://resnet50_v1c',
        'model.backbone.norm_eval': True,
        'model.decode_head': dict(anchors=dict(scales=[8])),
        'model.test_cfg': dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
        'train_cfg': dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=12),
        'load_from': 'model.pth',
    }
    cfg.merge_from_dict(changed)
    cfg.test_dataloader = [cfg.test_dataloader]  # which training does not use
    use_sample_data(cfg)
    dataset = cfg.val_dataloader.dataset
    assert dataset.data_root == str(written / 'ade/ADEChallengeData2016')
    assert cfg.test_dataloader[0].num_workers == 1
    assert dataset.pipeline[1] == dict(type='Resize', scale=(512, 128), keep_ratio=True)
    _, _, _, resize, crop, *_ = cfg.train_dataloader.dataset.pipeline
    assert (resize.scale, resize.ratio_range) == ((512, 128), (1.0, 1.25))
    assert crop == dict(type='RandomCrop', crop_size=(128, 128), cat_max_ratio=0.75)
    assert cfg.model.data_preprocessor.size == (128, 128)
    assert cfg.model.test_cfg == dict(mode='slide', crop_size=(128, 128), stride=(85, 85))
    assert cfg.model.decode_head.anchors.scales == [8]
    assert (cfg.model.backbone.norm_eval, cfg.model.backbone.init_cfg) == (False, None)
    assert cfg.load_from is cfg.model.pretrained is None
    assert cfg.optim_wrapper.optimizer.weight_decay == 0.01
    assert cfg.train_cfg.type == 'IterBasedTrainLoop'
    assert cfg.param_scheduler[-1].end == cfg.train_cfg.max_iters


def test_annotations_of_coco(written):
    cfg = Config.fromfile(CONFIGS / 'bixt/maskrcnn_bixt_ti_3x_coco.py')
    use_sample_data(cfg)
    assert cfg.val_evaluator.ann_file == str(written / 'coco/annotations/instances_val2017.json')


@pytest.mark.parametrize(
    ('config', 'scope', 'message'),
    [
        ('bisa_swin/bisa_swin_t_cifar100', 'mmpretrain', 'This config has CIFAR100 of mmpretrain'),
        ('bixt/semfpn_bixt_ti_ade20k', 'mmpose', 'This config has ADE20KDataset of mmpose'),
    ],
)
def test_other_data_sets_and_frameworks_are_refused_before_drawing(
    tmp_path, config, scope, message
):
    cfg = Config.fromfile(CONFIGS / f'{config}.py')
    cfg.default_scope = scope
    with pytest.raises(ConfigError, match=message):
        use_sample_data(cfg, tmp_path / 'sample')
    assert not [*tmp_path.iterdir()]

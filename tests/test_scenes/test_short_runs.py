from copy import deepcopy

from helpers import CONFIGS
from mmengine.config import Config

from mmbixt.scenes.short_runs import use_scenes


def test_changes_only_what_is_necessary(tmp_path, monkeypatch):
    """Nothing stays frozen at random weights, and anchors and the weight decay stay as they are."""
    monkeypatch.setattr('mmbixt.scenes.short_runs.write_scenes', lambda root: tmp_path)
    cfg = Config.fromfile(CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py')
    pretrained = dict(type='Pretrained', checkpoint='weights.pth')
    changed = {
        'model.pretrained': 'open-mmlab://resnet50_v1c',
        'model.backbone': dict(frozen_stages=1, norm_eval=True, init_cfg=pretrained),
        'model.decode_head': dict(anchors=dict(scales=[8])),
        'model.test_cfg': dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
        'load_from': 'model.pth',
    }
    cfg.merge_from_dict(changed)
    with_a_file, option = deepcopy(cfg), 'model.backbone.init_cfg.checkpoint'
    use_scenes(with_a_file, options=[option])
    with_a_file.merge_from_dict({option: 'mine.pth'})
    assert with_a_file.model.backbone.init_cfg == dict(pretrained, checkpoint='mine.pth')
    changes = use_scenes(cfg)
    assert 'model.pth, open-mmlab://resnet50_v1c, weights.pth' in changes[3]
    backbone = cfg.model.backbone
    assert (backbone.frozen_stages, backbone.norm_eval, backbone.init_cfg) == (-1, False, None)
    assert cfg.load_from is cfg.model.pretrained is None
    assert cfg.model.test_cfg == dict(mode='slide', crop_size=(128, 128), stride=(85, 85))
    assert cfg.model.decode_head.anchors.scales == [8]
    assert cfg.optim_wrapper.optimizer.weight_decay == 0.01

"""Plain ViTs of timm as backbones: resume, frozen weights, sizes that are no multiples of 16."""

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from mmseg.structures import SegDataSample
from running import fresh_mmengine, shorten, write_few_scenes

from mmbixt.config import read_config, without_downloads
from mmbixt.scenes.short_runs import use_scenes


def train(cfg, folder, **options):
    """Two steps, with a checkpoint after each."""
    shorten(cfg, folder, steps=2)
    cfg.update(options, randomness=dict(seed=0))
    cfg.default_hooks.checkpoint.interval = 1
    with fresh_mmengine():
        Runner.from_cfg(cfg).train()
    return [torch.load(folder / f'iter_{i}.pth', weights_only=False) for i in (1, 2)]


@pytest.mark.zoo
@pytest.mark.parametrize('name', ['semfpn_vit_s16_ade20k', 'semfpn_dinov3_s16_frozen_ade20k'])
def test_resumes_with_the_same_weights(name, tmp_path):
    scenes = write_few_scenes(tmp_path / 'scenes')

    def config():
        cfg = read_config(name)
        assert any('random instead of vit_small' in x for x in use_scenes(cfg, str(scenes)))
        return cfg

    first, second = (x['state_dict'] for x in train(config(), tmp_path / 'whole'))
    parts = tmp_path / 'parts'
    parts.mkdir()
    start = tmp_path / 'whole/iter_1.pth'
    (parts / 'iter_1.pth').symlink_to(start)
    again = train(config(), parts, resume=True, load_from=str(start))[1]['state_dict']
    assert all(torch.equal(again[key], x) for key, x in second.items())
    changed = {key.split('.')[0] for key, x in second.items() if not torch.equal(x, first[key])}
    assert changed == {'neck', 'decode_head', *['backbone'] * ('frozen' not in name)}


@pytest.mark.parametrize('name', ['semfpn_vit_s16_ade20k', 'semfpn_dinov3_s16_ade20k'])
def test_predicts_images_of_any_size(name):
    cfg = read_config(name)
    init_default_scope('mmseg')
    model = MODELS.build(without_downloads(cfg.model)).eval()
    sample = SegDataSample(metainfo=dict(ori_shape=(50, 77), img_shape=(50, 77)))
    image = torch.randint(256, (3, 50, 77), dtype=torch.uint8)
    (found,) = model.test_step(dict(inputs=[image], data_samples=[sample]))
    assert found.pred_sem_seg.data.shape == (1, 50, 77)
    assert model(torch.randn(2, 3, 50, 77), mode='tensor').shape == (2, 150, 16, 20)

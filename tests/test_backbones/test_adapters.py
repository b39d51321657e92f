"""LoRA by mmpretrain's ``LoRAModel``, in a config of mmseg: the recipe in docs/training.md."""

import pytest
import torch
from helpers import assert_close, image
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from running import fresh_mmengine, small_segmentor
from variants import FAMILIES, VARIANTS, build

from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import load_whole_state


def adapted(config, path):
    """LoRA of all linear layers, around the weights of a file."""
    state = build(config).state_dict()
    if config['type'] == 'mmbixt.XCiT':  # the file of a classifier, whose head is not used
        state['cls_token'] = torch.zeros(1, 1, 8)
    torch.save(state, path)
    pretrained = dict(type='Pretrained', checkpoint=str(path))
    module = {**config, 'norm_eval': True, 'init_cfg': pretrained}
    targets = [dict(type='.*')]
    return dict(type='mmpretrain.LoRAModel', module=module, rank=2, alpha=4, targets=targets)


@pytest.mark.parametrize('family', [*FAMILIES])
def test_adapters_alone_are_a_checkpoint_of_any_family(family, tmp_path):
    init_default_scope('mmseg')
    config = adapted(FAMILIES[family], tmp_path / 'whole.pth')
    trained = MODELS.build(config)
    adapters = [p for p in trained.parameters() if p.requires_grad]
    for parameter in adapters:
        torch.nn.init.normal_(parameter)
    state = trained.state_dict()
    assert len(state) == len(adapters) > 0
    loaded = MODELS.build(config)
    assert loaded.load_state_dict(state, strict=False) == ([], [])
    x = image(1, 48, 33)
    for actual, expected in zip(loaded.eval()(x), trained.eval()(x), strict=True):
        assert_close(actual, expected, 1e-6)
    plain = build(FAMILIES[family]).eval()
    assert not torch.allclose(plain(x)[-1], loaded(x)[-1])


def test_training_and_resuming(tmp_path):
    cfg = small_segmentor(tmp_path, adapted(VARIANTS['xcit'], tmp_path / 'whole.pth'))
    cfg.default_hooks.checkpoint = dict(type='CheckpointHook', interval=1, by_epoch=False)
    with fresh_mmengine():
        Runner.from_cfg(cfg).train()
    first, second = (load(str(tmp_path / f'run/iter_{i}.pth'))['state_dict'] for i in (1, 2))
    parts = {key for key in second if not key.startswith('decode_head.')}
    assert all('.lora_' in key for key in parts)
    assert any(not torch.equal(first[key], second[key]) for key in parts)
    cfg.merge_from_dict({'resume': True, 'train_cfg.max_iters': 3})
    with fresh_mmengine():
        runner = Runner.from_cfg(cfg)
        runner.train()
        assert runner.iter == 3
        init_default_scope('mmseg')
        load_whole_state(MODELS.build(cfg.model), load(str(tmp_path / 'run/iter_3.pth')))

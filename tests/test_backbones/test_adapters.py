"""LoRA by mmpretrain's ``LoRAModel``, in a config of mmseg: the recipe in docs/training.md."""

from unittest.mock import patch

import pytest
import torch
from helpers import assert_close, image
from mmengine.model import BaseModule
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner, load_checkpoint
from mmseg.apis import init_model
from running import fresh_mmengine, small_segmentor
from variants import FAMILIES, VARIANTS, build

from mmbixt.check.config import find_problems
from mmbixt.check.model import adapter_problems
from mmbixt.checkpoints.adapters import check_adapters, note_adapters
from mmbixt.checkpoints.errors import CheckpointError
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, load_whole_state


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
    del state[next(iter(state))]
    with pytest.raises(CheckpointMismatchError, match='does not fit the adapters'):
        loaded.load_state_dict(state, strict=False)


def test_training_and_resuming(tmp_path):
    cfg = small_segmentor(tmp_path, adapted(VARIANTS['xcit'], tmp_path / 'whole.pth'))
    cfg.default_hooks.checkpoint = dict(type='CheckpointHook', interval=1, by_epoch=False)
    cfg.default_hooks.load_from = dict(type='mmbixt.LoadFromHook')
    with fresh_mmengine():
        assert find_problems(cfg, ('train',)) == ([], [])
        Runner.from_cfg(cfg).train()
    first, second = (
        torch.load(tmp_path / f'run/iter_{i}.pth', weights_only=False)['state_dict'] for i in (1, 2)
    )
    parts = {key for key in second if not key.startswith('decode_head.')}
    assert all('.lora_' in key for key in parts)
    assert any(not torch.equal(first[key], second[key]) for key in parts)
    cfg.merge_from_dict({'resume': True, 'train_cfg.max_iters': 3})
    with fresh_mmengine():
        runner = Runner.from_cfg(cfg)
        runner.train()
    assert runner.iter == 3
    written = torch.load(tmp_path / 'run/iter_3.pth', weights_only=False)
    with fresh_mmengine():
        init_default_scope('mmseg')
        load_whole_state(MODELS.build(cfg.model), written)
        torch.save(dict(state_dict=written['state_dict']), tmp_path / 'unnoted.pth')
        with patch('mmbixt.backbones.base.print_log') as log:
            load_checkpoint(MODELS.build(cfg.model), str(tmp_path / 'unnoted.pth'))
        assert 'unnoted.pth does not say which other weights' in log.call_args.args[0]
        cfg.model.backbone.alpha = 6
        with pytest.raises(
            CheckpointError, match=r'^\S+iter_3\.pth has adapters of .*another alph'
        ):
            load_whole_state(MODELS.build(cfg.model), load(str(tmp_path / 'run/iter_3.pth')))
        with pytest.raises(CheckpointError, match=r'another alpha or rank: .* was 2, .* gives 3\.'):
            load_whole_state(MODELS.build(cfg.model), written)
        with pytest.raises(CheckpointError, match='another alpha'):
            Runner.from_cfg(cfg).train()
        cfg.model.backbone.alpha = 4
        state = torch.load(tmp_path / 'whole.pth')
        # weights that are resized when they are loaded differ between processors by roundings
        rounded = {k: x * (1 + 1e-6) if x.is_floating_point() else x for k, x in state.items()}
        torch.save(rounded, tmp_path / 'whole.pth')
        load_whole_state(MODELS.build(cfg.model), written)
        statistic = next(key for key in state if 'running_mean' in key)
        for changed in ({k: x + 1 for k, x in state.items()}, {statistic: state[statistic] + 5}):
            torch.save({**state, **changed}, tmp_path / 'whole.pth')
            with pytest.raises(CheckpointError, match=r'other weights of backbone .* differs\)'):
                load_whole_state(MODELS.build(cfg.model), written)
            with pytest.raises(CheckpointError, match=r'other weights of backbone .* differs\)'):
                init_model(cfg, str(tmp_path / 'run/iter_3.pth'), device='cpu')
            revise = [(r'^backbone\.', '')]
            backbone = MODELS.build(cfg.model.backbone)
            with pytest.raises(CheckpointError, match='other weights of backbone'):
                load_checkpoint(backbone, str(tmp_path / 'run/iter_3.pth'), revise_keys=revise)
        other = {**cfg.model.backbone, 'targets': [dict(type='.*fc1')]}
        with pytest.raises(
            CheckpointMismatchError, match=r'does not fit the adapters of mmbixt\.XC'
        ):
            MODELS.build(other).load_state_dict(
                {k.removeprefix('backbone.'): x for k, x in written['state_dict'].items()}, False
            )


class ManySizes(BaseModule):
    """A network with buffers of the size of the last image, and with infinite ones."""

    def __init__(self, size=4, init_cfg=None):
        super().__init__(init_cfg)
        self.qkv, self.position = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.ones(size))
        self.register_buffer('hidden', torch.tensor([0.0, -torch.inf]))

    def forward(self, x):
        self.register_buffer('angles', torch.arange(len(x)) / 2, persistent=False)
        return self.qkv(x)


def test_networks_that_change_with_the_size_of_images():
    def build(size):
        torch.manual_seed(0)
        targets = [dict(type='qkv')]
        module = dict(type=ManySizes, size=size)
        return MODELS.build(
            dict(type='mmpretrain.LoRAModel', module=module, rank=1, alpha=1, targets=targets)
        )

    trained, checkpoint = build(4), dict(meta={})
    trained.module(torch.zeros(5, 3))
    note_adapters(trained, checkpoint)
    check_adapters(build(4), checkpoint, None)
    check_adapters(build(6), checkpoint, None)  # with its position encoding resized
    with torch.no_grad():
        trained.module.position.mul_(0.5)
    with pytest.raises(CheckpointError, match=r'position differs'):
        check_adapters(trained, checkpoint, None)
    for weights in (3, dict(position=3), dict(position=[1, 2]), dict(position=[(4,), 'a', 'b'])):
        of_others = dict(mmbixt_adapters={'': dict(factors={}, weights=weights)})
        check_adapters(trained, dict(meta=of_others), None)


@pytest.mark.parametrize(
    'meta', [3, 'text', dict(mmbixt_adapters=3), dict(mmbixt_adapters=dict(backbone=3)), None]
)
def test_files_of_others_may_have_anything_as_their_meta(meta, tmp_path):
    state = build(VARIANTS['xcit']).state_dict()
    torch.save(dict(meta=meta, state_dict=state), tmp_path / 'x.pth')
    load_checkpoint(build(VARIANTS['xcit']), str(tmp_path / 'x.pth'))
    check_adapters(torch.nn.Linear(1, 1), dict(meta=meta), None)


def test_what_would_be_lost_is_refused(tmp_path):
    cfg = small_segmentor(tmp_path, adapted(VARIANTS['xcit'], tmp_path / 'whole.pth'))
    cfg.model.backbone.module.update(norm_eval=False, init_cfg=None)
    with fresh_mmengine():
        (first, second), _ = find_problems(cfg, ('train',))
    assert first.startswith('model.backbone.module.init_cfg: ')
    assert second.startswith('model.backbone.module.norm_eval ')


def test_batch_norms_that_cannot_be_kept_are_refused():
    module = dict(type='mmpretrain.MobileViT', arch='xx_small', init_cfg=dict(type='Pretrained'))
    config = dict(type='mmpretrain.LoRAModel', rank=2, alpha=4, targets=[dict(type='.*qkv')])
    with torch.device('meta'), patch.object(BaseModule, 'init_weights'):
        model = MODELS.build({**config, 'module': module})
    (problem,) = adapter_problems(torch.nn.ModuleDict(dict(backbone=model)))
    assert 'MobileViT has no such option: choose another network' in problem

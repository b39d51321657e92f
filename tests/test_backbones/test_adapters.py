"""LoRA by mmpretrain's ``LoRAModel``, in a config of mmseg: the recipe in docs/training.md."""

import pytest
import torch
from helpers import assert_close, image
from mmengine.registry import MODELS, init_default_scope
from variants import FAMILIES, build

from mmbixt.checkpoints.errors import CheckpointMismatchError


@pytest.mark.parametrize('family', FAMILIES)
def test_adapters_alone_are_a_checkpoint_of_any_family(family, tmp_path):
    """LoRA of all linear layers, around the weights of a file."""
    init_default_scope('mmseg')
    plain, x = build(FAMILIES[family]).eval(), image(1, 48, 33)
    torch.save(plain.state_dict(), tmp_path / 'whole.pth')
    pretrained = dict(type='Pretrained', checkpoint=str(tmp_path / 'whole.pth'))
    module = {**FAMILIES[family], 'norm_eval': True, 'init_cfg': pretrained}
    config = dict(type='mmpretrain.LoRAModel', module=module, targets=[dict(type='.*')], rank=2)
    trained = MODELS.build(config)
    adapters = [p for p in trained.parameters() if p.requires_grad]
    for parameter in adapters:
        torch.nn.init.normal_(parameter)
    state = trained.state_dict()
    assert len(state) == len(adapters) > 0
    loaded = MODELS.build(config)
    assert loaded.load_state_dict(state, strict=False) == ([], [])
    assert_close(loaded.eval()(x), trained.eval()(x), 1e-6)
    assert not torch.allclose(plain(x)[-1], loaded(x)[-1])
    module['init_cfg'] = None
    with pytest.raises(CheckpointMismatchError, match='such as adapters: name the file'):
        MODELS.build(config).load_state_dict(state, strict=False)

"""The authors' files, by every way on which weights come into a model."""

import pytest
import torch
from helpers import official_state
from mmengine.runner import load_checkpoint

from mmbixt.backbones import BiXT
from mmbixt.checkpoints.bixt import convert_bixt
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, unwrap

SMALL = dict(embed_dims=32, num_heads=2, depth=2)


def as_published(state):
    return {'state_dict': {f'module._orig_mod.{key}': value for key, value in state.items()}}


def assert_loaded(backbone, state):
    own = backbone.state_dict()
    floats = [key for key in own if own[key].is_floating_point()]
    assert all(torch.equal(own[key], state[key]) for key in floats)


@pytest.mark.parametrize('wrap', [lambda s: s, as_published, lambda s: {'model': s}])
@pytest.mark.parametrize('strict', [True, False])
def test_plain_load_state_dict(wrap, strict):
    state = official_state('bixt_ti_l64_d13_p16')
    backbone = BiXT()
    backbone.load_state_dict(wrap(state), strict=strict)
    assert_loaded(backbone, state)


@pytest.mark.parametrize('size', [14, 56])
def test_stored_position_grid_of_any_size_is_dropped(size):
    state = official_state('bixt_ti_l64_d13_p16')
    BiXT().load_state_dict({**state, 'fourier_pos_encode.pos': torch.zeros(64, size, size)})


def test_deeper_layers_of_the_file_are_not_needed():
    state = official_state('bixt_ti_l64_d13_p16')
    backbone = BiXT(out_indices=(3, 5))
    backbone.load_state_dict(state)
    assert_loaded(backbone, state)


@pytest.mark.parametrize('strict', [True, False])
def test_missing_weight_is_an_error_that_leaves_the_model_alone(strict):
    state = official_state('bixt_ti_l64_d13_p16')
    del state['blocks.3.cross_attention_latents_token.mlp_pat.fc1.bias']
    backbone = BiXT()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    with pytest.raises(CheckpointMismatchError, match=r'blocks\.3\..*mlp_pat\.fc1\.bias'):
        backbone.load_state_dict(state, strict=strict)
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())


def test_local_patch_interaction_may_be_missing():
    state = official_state('bixt_ti_l64_d13_p16')
    backbone = BiXT(token_refiner='lpi')
    backbone.load_state_dict(state)
    own = backbone.state_dict()
    assert all(torch.equal(own[key], value) for key, value in state.items() if key in own)


class Whole(torch.nn.Module):
    """As much of a segmentor as loading sees."""

    def __init__(self):
        super().__init__()
        self.backbone = BiXT(arch=SMALL)
        self.head = torch.nn.Linear(2, 2)


@pytest.fixture
def whole(tmp_path):
    """A whole model and its file."""
    model, path = Whole(), tmp_path / 'whole.pth'
    torch.save({'meta': {}, 'state_dict': model.state_dict()}, path)
    return model, str(path)


def test_whole_model_round_trip(whole):
    source, path = whole
    target = Whole()
    load_checkpoint(target, path, strict=True)
    for key, value in target.state_dict().items():
        assert torch.equal(value, source.state_dict()[key])


def test_backbone_of_a_whole_model(whole):
    source, path = whole
    init = dict(type='Pretrained', checkpoint=path)
    with pytest.raises(CheckpointMismatchError, match=r"(?s)whole mm model.*prefix='backbone.'"):
        BiXT(arch=SMALL, init_cfg=init).init_weights()
    backbone = BiXT(arch=SMALL, init_cfg={**init, 'prefix': 'backbone.'})
    backbone.init_weights()
    assert_loaded(backbone, source.backbone.state_dict())


def test_classification_file_is_not_for_a_whole_model(tmp_path):
    state, path = official_state('bixt_ti_l64_d13_p16'), str(tmp_path / 'bixt.pth')
    torch.save({'state_dict': state}, path)
    message = r"begins with 'backbone\.'.*init_cfg"
    with pytest.raises(CheckpointMismatchError, match=message):
        load_checkpoint(Whole(), path)
    with pytest.raises(CheckpointMismatchError, match=message):
        Whole().load_state_dict(state, strict=False)


def test_conversion_is_a_pure_function():
    state = {'latents': torch.zeros(1), 'head.weight': torch.zeros(1)}
    assert set(convert_bixt(state, {'latents'}).weights) == {'latents'}
    assert set(state) == {'latents', 'head.weight'}


def test_unwrap():
    weight = torch.zeros(1)
    assert unwrap({'epoch': 3, 'state_dict': {'module.a': weight}}) == {'a': weight}
    assert unwrap({'model': {'_orig_mod.module.a': weight}}) == {'a': weight}
    assert unwrap({'module_a': weight}) == {'module_a': weight}
    assert unwrap({'epoch': 3, 'model_ema': {'a': weight, 'steps': 7}}) == {'a': weight}

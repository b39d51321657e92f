"""The authors' files, by every way on which weights come into a model."""

import pytest
import torch
from mmengine.runner import load_checkpoint
from test_checkpoints.layouts import meta_state, random_state

from mmbixt.backbones import BiXT
from mmbixt.checkpoints.bixt import convert_bixt
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, unwrap

SMALL = dict(embed_dims=32, num_heads=2, depth=2)
LAYOUT = 'bixt_ti_l64_d13_p16'


@pytest.fixture(scope='module')
def state():
    return random_state(LAYOUT)


def assert_loaded(backbone, state):
    own = backbone.state_dict()
    floats = [key for key in own if own[key].is_floating_point()]
    assert all(torch.equal(own[key], state[key]) for key in floats)


@pytest.mark.parametrize('strict', [True, False])
def test_plain_load_state_dict(state, strict):
    """As published: in a container, saved from wrappers, with a position grid of any size."""
    backbone = BiXT(out_indices=(3, 5))  # of fewer layers than the file
    named = {**state, 'fourier_pos_encode.pos': torch.zeros(64, 14, 14)}
    published = {'state_dict': {f'module._orig_mod.{k}': value for k, value in named.items()}}
    backbone.load_state_dict(published, strict=strict)
    assert_loaded(backbone, state)


def test_missing_weight_is_an_error_that_leaves_the_model_alone(state):
    missing = 'blocks.3.cross_attention_latents_token.mlp_pat.fc1.bias'
    backbone = BiXT()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    with pytest.raises(CheckpointMismatchError, match=missing.replace('.', r'\.')):
        backbone.load_state_dict({k: v for k, v in state.items() if k != missing}, strict=False)
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())


def test_local_patch_interaction_may_be_missing(state):
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


def test_classification_file_is_not_for_a_whole_model():
    with pytest.raises(CheckpointMismatchError, match=r"begins with 'backbone\.'.*init_cfg"):
        Whole().load_state_dict(meta_state(LAYOUT), strict=False)


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


def test_unwrap_of_a_checkpoint_within_itself():
    inner = {'state_dict': None, 'model': {'module.w': torch.ones(1)}}
    outer = {'state_dict': inner}
    inner['state_dict'] = outer
    assert set(unwrap(outer)) == {'w'}
    outer['model_ema'], inner['model'] = inner, outer
    assert not unwrap(outer)

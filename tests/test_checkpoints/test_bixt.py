"""The authors' files, by every way on which weights come into a model."""

import logging

import pytest
import torch
from helpers import official_state
from mmengine.registry import MODELS
from mmengine.runner import load_checkpoint

from mmbixt.backbones import BiXT
from mmbixt.checkpoints.bixt import convert_bixt
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, unwrap

SMALL = dict(embed_dims=32, num_heads=2, depth=2)

LAYOUTS = {  # every published layout: the dense model that it fills
    'bixt_ti_l64_d13_p16': dict(),
    'bixt_ti_l64_d13_p16s8': dict(patch_stride=8),
    'bixt_ti_cnv_l64_d13_p16': dict(patch_embed='conv'),
    'bixt_ti_cnv_l64_d13_p8': dict(patch_embed='conv', patch_stride=8),
    'bixt_ti_cnv_l64_d13_p4': dict(patch_embed='conv', patch_stride=4),
    'bixt_ti_l64_p16': dict(depth=11),
    'bixt_ed256_l64_p16': dict(arch='d256'),
    'bixt_ed256LS_l64_p16s8': dict(arch='d256-ls', patch_stride=8),
}


def as_published(state):
    return {'state_dict': {f'module._orig_mod.{key}': value for key, value in state.items()}}


def assert_loaded(backbone, state):
    own = backbone.state_dict()
    floats = [key for key in own if own[key].is_floating_point()]
    assert all(torch.equal(own[key], state[key]) for key in floats)


@pytest.mark.parametrize('with_latents', [False, True])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_every_layout_fills_its_model_through_init_cfg(tmp_path, layout, with_latents):
    state = official_state(layout)
    torch.save(as_published(state), tmp_path / 'bixt.pth')
    config = dict(type='mmbixt.BiXT', with_latents=with_latents, **LAYOUTS[layout])
    checkpoint = str(tmp_path / 'bixt.pth')
    backbone = MODELS.build({**config, 'init_cfg': dict(type='Pretrained', checkpoint=checkpoint)})
    backbone.init_weights()
    assert_loaded(backbone, state)


@pytest.mark.parametrize('wrap', [lambda s: s, as_published, lambda s: {'model': s}])
@pytest.mark.parametrize('strict', [True, False])
def test_plain_load_state_dict(wrap, strict):
    state = official_state('bixt_ti_l64_d13_p16')
    backbone = BiXT()
    backbone.load_state_dict(wrap(state), strict=strict)
    assert_loaded(backbone, state)


def test_stored_position_grid_of_any_size_is_dropped():
    state = official_state('bixt_ti_l64_d13_p16')
    for size in (14, 24, 56):
        BiXT().load_state_dict({**state, 'fourier_pos_encode.pos': torch.zeros(64, size, size)})


def test_deeper_layers_of_the_file_are_not_needed():
    state = official_state('bixt_ti_l64_d13_p16')
    backbone = BiXT(out_indices=(3, 5))
    backbone.load_state_dict(state)
    assert_loaded(backbone, state)


def test_twelve_layer_file_fills_eleven_and_says_so():
    state = official_state('bixt_ti_l64_p16')
    with pytest.raises(CheckpointMismatchError, match='build the backbone with depth=11') as caught:
        BiXT().load_state_dict(state, strict=False)
    assert 'BiXT, width 192, 64 latents, 11 layers' in str(caught.value)
    BiXT(depth=11).load_state_dict(state)


@pytest.mark.parametrize('strict', [True, False])
def test_missing_weight_is_an_error_that_leaves_the_model_alone(strict):
    state = official_state('bixt_ti_l64_d13_p16')
    del state['blocks.3.cross_attention_latents_token.mlp_pat.fc1.bias']
    backbone = BiXT()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    with pytest.raises(CheckpointMismatchError, match=r'blocks\.3\..*mlp_pat\.fc1\.bias'):
        backbone.load_state_dict(state, strict=strict)
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())


def test_another_width_is_named(tmp_path):
    torch.save(as_published(official_state('bixt_ed256_l64_p16')), tmp_path / 'wide.pth')
    with pytest.raises(CheckpointMismatchError) as caught:
        load_checkpoint(BiXT(depth=11), str(tmp_path / 'wide.pth'))
    message = str(caught.value)
    assert 'seems to be BiXT, width 256' in message
    assert 'latents: (1, 64, 256) in the file, (1, 64, 192) here' in message


def test_layer_scale_of_the_file_is_not_dropped_in_silence():
    with pytest.raises(CheckpointMismatchError, match=r'Not in the model: .*ls1\.gamma'):
        BiXT('d256', patch_stride=8).load_state_dict(
            official_state('bixt_ed256LS_l64_p16s8'), strict=False
        )


def test_another_number_of_latents_is_named():
    with pytest.raises(CheckpointMismatchError, match=r'latents: \(1, 64, 192\) in the file'):
        BiXT(num_latents=128).load_state_dict(official_state('bixt_ti_l64_d13_p16'), strict=False)


def test_another_family_is_named():
    state = official_state('xcit_tiny_12_p16__dense')
    with pytest.raises(CheckpointMismatchError, match='seems to be XCiT'):
        BiXT().load_state_dict(state, strict=False)


def test_local_patch_interaction_may_be_missing_and_the_log_says_so(caplog):
    state = official_state('bixt_ti_l64_d13_p16')
    backbone = BiXT(token_refiner='lpi')
    logger = logging.getLogger('mmengine')
    logger.addHandler(caplog.handler)
    backbone.load_state_dict(state)
    logger.removeHandler(caplog.handler)
    own = backbone.state_dict()
    assert all(torch.equal(own[key], value) for key, value in state.items() if key in own)


class Whole(torch.nn.Module):
    """As much of a segmentor as loading sees."""

    def __init__(self):
        super().__init__()
        self.backbone = BiXT(arch=SMALL)
        self.head = torch.nn.Linear(2, 2)


def test_whole_model_round_trip(tmp_path):
    source, target = Whole(), Whole()
    torch.save({'meta': {}, 'state_dict': source.state_dict()}, tmp_path / 'whole.pth')
    load_checkpoint(target, str(tmp_path / 'whole.pth'), strict=True)
    for key, value in target.state_dict().items():
        assert torch.equal(value, source.state_dict()[key])


def test_backbone_of_a_whole_model(tmp_path):
    source = Whole()
    torch.save({'meta': {}, 'state_dict': source.state_dict()}, tmp_path / 'whole.pth')
    init = dict(type='Pretrained', checkpoint=str(tmp_path / 'whole.pth'))
    with pytest.raises(
        CheckpointMismatchError, match=r"whole mm model.*\n.*\n.*\n.*prefix='backbone.'"
    ):
        BiXT(arch=SMALL, init_cfg=init).init_weights()
    backbone = BiXT(arch=SMALL, init_cfg={**init, 'prefix': 'backbone.'})
    backbone.init_weights()
    assert_loaded(backbone, source.backbone.state_dict())


@pytest.mark.parametrize('load', ['mmengine', 'torch'])
def test_classification_file_is_not_for_a_whole_model(tmp_path, load):
    state = official_state('bixt_ti_l64_d13_p16')
    path = str(tmp_path / 'bixt.pth')
    torch.save({'state_dict': state}, path)
    loaders = {
        'mmengine': lambda: load_checkpoint(Whole(), path),
        'torch': lambda: Whole().load_state_dict(state, strict=False),
    }
    with pytest.raises(CheckpointMismatchError, match=r"begins with 'backbone\.'.*init_cfg"):
        loaders[load]()


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

"""Swin Transformers of OpenMMLab, Microsoft and timm, by every way on which weights come in."""

import pytest
import timm
import torch
from helpers import assert_close, image
from mmengine.logging import MMLogger
from mmengine.registry import MODELS
from test_checkpoints.layouts import build_meta, meta_state, random_state

from mmbixt.backbones import BiSASwin
from mmbixt.checkpoints.state_dict import CheckpointMismatchError
from mmbixt.checkpoints.swin import convert_swin

LAYOUTS = ('swin_tiny_mmseg', 'swin_tiny_microsoft', 'swin_tiny_timm')


@pytest.fixture
def log(caplog):
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_every_layout_fills_the_model_through_init_cfg(tmp_path, layout):
    """Also what has no use for some of it: norms of other outputs, and our own index."""
    state = random_state(layout)
    if layout == 'swin_tiny_microsoft':
        state['layers.0.blocks.0.attn.relative_position_index'] = torch.zeros(49, 49).long()
        state['layers.0.blocks.1.attn_mask'] = torch.zeros(64, 49, 49)
    torch.save({'model': state}, tmp_path / 'swin.pth')
    init = dict(type='Pretrained', checkpoint=str(tmp_path / 'swin.pth'))
    backbone = MODELS.build(dict(type='mmbixt.BiSASwin', bisa_stages=(0,), init_cfg=init))
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    backbone.init_weights()
    own = backbone.state_dict()
    expected = convert_swin(state, own).weights
    if layout == 'swin_tiny_microsoft':
        del expected['stages.0.blocks.0.attn.w_msa.relative_position_index']
    fresh = set(own) - set(expected)
    assert all(torch.equal(own[key], value) for key, value in expected.items())
    assert all(torch.equal(own[key], before[key]) for key in fresh)
    assert all(any(part in key for part in ('norm', 'index', '.isa.')) for key in fresh)
    assert len(expected) == (177 if layout == 'swin_tiny_mmseg' else 169)


def test_outputs_of_timm():
    """At a size at which neither pads, and all stages are larger than a window."""
    theirs = timm.create_model(
        'swin_tiny_patch4_window7_224', img_size=448, features_only=True, out_indices=(0, 1, 2, 3)
    ).eval()
    ours = BiSASwin(bisa_stages=()).eval()
    ours.load_state_dict(
        {k.replace('layers_', 'layers.'): v for k, v in theirs.state_dict().items()}
    )
    for i in range(4):
        ours.set_submodule(f'norm{i}', torch.nn.Identity())
    x = image(1, 448, 448)
    with torch.no_grad():
        for actual, expected in zip(ours(x), theirs(x), strict=True):
            assert_close(actual, expected.permute(0, 3, 1, 2))


def test_stages_and_norms_that_no_output_needs_are_dropped(log):
    model = build_meta(BiSASwin, out_indices=(0, 2), bisa_stages=())
    model.load_state_dict(meta_state('swin_tiny_mmseg'))
    assert 'no use for these weights of the file: norm1 (2), norm3 (2), stages.2 (3)' in log.text


def test_the_log_says_which_weights_are_fresh(log):
    build_meta(BiSASwin, lam='learned').load_state_dict(meta_state('swin_tiny_timm'))
    message = 'not in the file, so initialised afresh: norm0 (2), norm1 (2), norm2 (2), norm3 (2), '
    assert f'{message}stages.0 (8)' in log.text


def test_own_weights_come_back_without_a_message(log):
    arch = dict(embed_dims=8, depths=(2, 1), num_heads=(1, 2))
    source, target = (BiSASwin(arch, lam='learned', out_indices=(0, 1)) for _ in range(2))
    target.load_state_dict(source.state_dict())
    for key, value in target.state_dict().items():
        assert torch.equal(value, source.state_dict()[key])
    assert log.text == ''


def test_merging_of_patches_is_put_in_order():
    """Microsoft's columns are (pixel, channel), the pixels column by column."""
    named = torch.tensor([10 * pixel + channel for pixel in (0, 2, 1, 3) for channel in (0, 1, 2)])
    state = {'layers.0.downsample.reduction.weight': named.expand(6, 12)}
    expected = {'stages.0.downsample.reduction.weight', 'stages.1.blocks.0.norm1.weight'}
    weight = convert_swin(state, expected).weights['stages.0.downsample.reduction.weight']
    assert weight[0].tolist() == [
        10 * pixel + channel for channel in (0, 1, 2) for pixel in range(4)
    ]


def without_one(layout):
    state = meta_state(layout)
    del state[next(key for key in state if key.endswith('.2.blocks.4.norm2.weight'))]
    return state


def deeper():
    state = meta_state('swin_tiny_timm')
    return state | {k.replace('blocks.5', 'blocks.6'): v for k, v in state.items() if 'ks.5' in k}


def resnet():
    """Its names too have a 'downsample' in them."""
    names = 'layer1.0.conv1.weight', 'layer2.0.downsample.0.weight'
    return {name: torch.zeros(8, 8, 1, 1) for name in names}


@pytest.mark.parametrize(
    ('state', 'message'),
    [
        (lambda: without_one('swin_tiny_mmseg'), r'1 of 189.*es\.2\.blocks\.4\.norm2'),
        (lambda: without_one('swin_tiny_microsoft'), r'1 of 189.*es\.2\.blocks\.4\.norm2'),
        (lambda: without_one('swin_tiny_timm'), r'1 of 189.*es\.2\.blocks\.4\.norm2'),
        (deeper, r'Not in the model: 13 .*layers\.2\.blocks\.6'),
        (lambda: build_meta(BiSASwin).state_dict(), r'Not in the model: 6 .*w_msa\.isa\.G'),
        (
            lambda: build_meta(BiSASwin, bisa_stages=(), window_size=12).state_dict(),
            'build the backbone with window_size=12',
        ),
        (resnet, 'seems to be ResNet'),
    ],
)
def test_files_that_do_not_fit_are_refused(state, message):
    with pytest.raises(CheckpointMismatchError, match=message):
        build_meta(BiSASwin, bisa_stages=()).load_state_dict(state(), strict=False)

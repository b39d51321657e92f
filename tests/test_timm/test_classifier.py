"""What timm's own tests ask of a model: in short for every name, in full for each kind."""

import copy

import pytest
import timm
import torch
from helpers import assert_close, image, others_in_zoo
from timm.models import group_parameters
from timm.optim import param_groups_layer_decay

import mmbixt.timm
from mmbixt.backbones.arch import resolve_out_indices

HERE = (
    'bixt_ti_l64_p16',
    'bixt_ti_cnv_l64_d13_p16_pyramid',
    'xcit_nano_12_p16_pyramid',
    'biformer_tiny',
    'bisa_swin_tiny',
)
# every kind of patch embedding, layer, last layers and pyramid
KINDS = (*HERE, 'bixt_ed256LS_l64_p16s8', 'xcit_tiny_12_p8_pyramid')
KINDS += ('biformer_stl',)
SIDE = 64
every_kind = pytest.mark.parametrize('name', others_in_zoo(KINDS, HERE))


def create(name, **options):
    torch.manual_seed(0)
    return timm.create_model(name, **{'num_classes': 10, **options})


@every_kind
@torch.no_grad()
def test_parts_of_the_forward_pass(name):
    model, x = create(name).eval(), image(2, SIDE, SIDE)
    features, logits = model.forward_features(x), model(x)
    vectors = model.forward_head(features, pre_logits=True)
    assert vectors.shape == (2, model.num_features) == (2, model.head_hidden_size)
    assert torch.equal(model.forward_head(features), logits)
    assert torch.equal(model.get_classifier()(vectors), logits)
    model.reset_classifier(0)
    assert torch.equal(model(x), vectors)
    model.reset_classifier(0, '')
    assert torch.equal(model(x), features)
    assert torch.equal(create(name, num_classes=0).eval()(x), vectors)
    assert torch.equal(create(name, num_classes=0, global_pool='').eval()(x), features)
    model.reset_classifier(3, model.pools[0])
    assert model(x).shape == (2, 3)


@every_kind
@torch.no_grad()
def test_intermediates(name):
    model, x = create(name).eval(), image(2, SIDE, SIDE)
    features, maps = model.forward_intermediates(x)
    assert torch.equal(features, model.forward_features(x))
    assert len(maps) == len(model.feature_info)
    for info, y in zip(model.feature_info, maps, strict=True):
        side = SIDE // info['reduction']
        assert y.shape == (2, info['num_chs'], side, side)
        model.get_submodule(info['module'])
    (y,) = model.forward_intermediates(x, 1, output_fmt='NLC', intermediates_only=True)
    assert torch.equal(y, maps[-1].flatten(2).transpose(1, 2))
    early, chosen = model.forward_intermediates(x, [0, -2], stop_early=True)
    assert_close(chosen, [maps[0], maps[-2]], 1e-6)
    assert len(early) == 2
    assert torch.equal(model.forward_intermediates(x, [-1], stop_early=True)[0], features)
    (normed,) = model.forward_intermediates(x, 1, norm=True, intermediates_only=True)
    if 'biformer' in name or 'bisa' in name:  # whose head reads this map
        assert torch.equal(normed, features)
    pruned = copy.deepcopy(model)
    assert pruned.prune_intermediate_layers([0, -2], prune_norm=True) == [0, len(maps) - 2]
    assert len(pruned.state_dict()) < len(model.state_dict())
    again = pruned.eval().forward_intermediates(x, [0, -1], intermediates_only=True)
    assert_close(again, chosen, 1e-6)


@every_kind
@pytest.mark.parametrize('out_indices', [(0, 2), (1, -1)])
def test_features_only(name, out_indices):
    model = create(name, features_only=True, out_indices=out_indices).train()
    x = image(2, SIDE, SIDE)
    maps = model(x)
    described = zip(model.feature_info.channels(), model.feature_info.reduction(), strict=True)
    assert [tuple(y.shape[1:]) for y in maps] == [(c, SIDE // s, SIDE // s) for c, s in described]
    assert [y.stride() for y in maps] == [torch.empty(y.shape).stride() for y in maps]
    sum(y.square().mean() for y in maps).backward()
    assert [key for key, parameter in model.named_parameters() if parameter.grad is None] == []


@every_kind
@torch.no_grad()
def test_features_are_those_of_the_forward_pass(name):
    model, x = create(name).eval(), image(1, SIDE, SIDE)
    net = create(name, features_only=True).eval()  # the same random weights
    layers = resolve_out_indices(None, len(model.feature_info))
    layers = layers if name.endswith('_pyramid') else net.out_indices
    expected = model.forward_intermediates(x, layers, intermediates_only=True)
    strides = [model.feature_info[i]['reduction'] for i in layers]
    for y, z, *pair in zip(net(x), expected, net.feature_info.reduction(), strides, strict=True):
        if pair[0] == pair[1]:  # other levels of a pyramid are resampled
            assert_close(y, z, 1e-6)


@every_kind
def test_groups_of_weights(name):
    """For layer-wise learning rates, and for weight decay."""
    with torch.device('meta'):
        model = create(name)
    names = [key for key, _ in model.named_parameters()]
    for coarse in (False, True):
        groups = group_parameters(model, model.group_matcher(coarse=coarse))
        assert sorted(key for group in groups.values() for key in group) == sorted(names)
        assert 'head.weight' not in groups[0]
    assert len(param_groups_layer_decay(model, layer_decay=0.8)) > 8
    assert model.no_weight_decay() <= {*names}


@pytest.mark.parametrize('name', others_in_zoo(mmbixt.timm.NAMES, HERE))
def test_description(name):
    """And that it is true."""
    with torch.device('meta'):
        model = create(name, img_size=SIDE, drop_rate=0.1, drop_path_rate=0.1)
        features = create(name, features_only=True)
        x = torch.empty(2, 3, SIDE, SIDE)
    cfg, info = model.default_cfg, features.feature_info
    assert cfg['license'] == ''
    assert model.get_parameter(f'{cfg["classifier"]}.weight').shape[0] == 10
    assert model.get_parameter(f'{cfg["first_conv"]}.weight').shape[1] == model.in_chans == 3
    assert timm.data.resolve_model_data_config(model)['crop_pct'] in (0.875, 1.0)
    assert model(x).shape == (2, 10)
    if pool_size := cfg['pool_size']:
        assert pool_size == (7, 7)
        assert model.forward_features(x).shape == (2, model.num_features, 2, 2)
    described = zip(info.channels(), info.reduction(), strict=True)
    shapes = [(2, channels, SIDE // stride, SIDE // stride) for channels, stride in described]
    assert [y.shape for y in features(x)] == shapes
    is_column = name.startswith('bixt') and not name.endswith('_pyramid')
    assert len(shapes) == 4 if is_column else info.reduction() == [4, 8, 16, 32]

"""Requirements on every backbone, tested for all variants."""

import copy
from itertools import product

import pytest
import torch
from helpers import assert_close, image, others_in_zoo
from torch import nn
from variants import FAMILIES, VARIANTS, build

from mmbixt.backbones.base import freezable_stages
from mmbixt.errors import UserError


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def config(request):
    return copy.deepcopy(request.param)


def test_channels_and_strides_of_the_feature_maps(config):
    backbone = build(config)
    is_stl = config['arch'].get('code', '').startswith('stl')
    for size in ((16, 16), (17, 16), (31, 33), (48, 80), (64, 47)):
        maps = backbone(image(2, *size))
        assert len(maps) == len(backbone.out_channels) == len(backbone.out_strides)
        for feature_map, channels, stride in zip(
            maps, backbone.out_channels, backbone.out_strides, strict=True
        ):
            # rounded down as in the authors' code; rounded up in all others
            height, width = (side // stride if is_stl else -(-side // stride) for side in size)
            assert feature_map.shape == (2, channels, height, width)


@pytest.mark.parametrize('options', [{}, dict(with_cp=True, frozen_stages=1, norm_eval=True)])
def test_feature_maps_have_the_strides_of_new_tensors(config, options):
    """Also with one row, one cell, or one channel, where ``is_contiguous()`` does not tell.

    mmcv's operators read memory in the order of the dimensions, whatever the strides are.
    """
    backbone = build(config, **options)
    for size in ((48, 80), (16, 64), (16, 16)):
        for training, autocast in product((True, False), (True, False)):
            with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
                maps = backbone.train(training)(image(2, *size))
            for feature_map in maps:
                assert feature_map.stride() == torch.empty(feature_map.shape).stride()
    ends = [feature_map.untyped_storage().data_ptr() for feature_map in maps]
    assert len({*ends}) == len(maps)


def test_sync_batch_norm_of_mmcv_is_refused():
    """It reads memory in the order of the dimensions, and tokens are channels-last."""
    convert = pytest.importorskip('mmengine.model').convert_sync_batchnorm
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group('gloo', store=store, rank=0, world_size=1)
    try:
        backbone = convert(build(FAMILIES['bixt conv, LPI']), 'mmcv')
    finally:
        torch.distributed.destroy_process_group()
    with pytest.raises(UserError, match="set sync_bn='torch'"):
        backbone.train()


def test_layer_norms_have_the_authors_epsilon(config):
    """The goldens are too coarse to test it."""
    norms = [m for m in build(config).modules() if isinstance(m, nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {1e-5 if config['type'] == 'mmbixt.BiSASwin' else 1e-6}


def check_checkpointing(config, compiler=None):
    plain, cheap = build(config).train(), build(config, with_cp=True).train()
    call = torch.compile(cheap, fullgraph=True, backend=compiler) if compiler else cheap
    x = image(2, 48, 32)
    results = []
    for backbone, maps in ((plain, plain(x)), (cheap, call(x))):
        loss = sum(feature_map.square().mean() for feature_map in maps)
        loss.backward()
        state = [*(p.grad for p in backbone.parameters()), *backbone.buffers()]
        results.append([loss.detach(), *(value.float() for value in state)])
        assert [name for name, p in backbone.named_parameters() if p.grad is None] == []
    assert_close(*results, 1e-4)


def test_every_parameter_gets_a_gradient_with_and_without_checkpointing(config):
    check_checkpointing(config)


@pytest.mark.zoo
def test_checkpointing_compiled(fresh_compiler):
    """With batch norms in the checkpointed layers, the part that is special when compiled."""
    check_checkpointing(FAMILIES['bixt conv, LPI'], 'aot_eager')


def test_frozen_stages_and_norms_in_eval_mode_do_not_change(config):
    backbone = build(config, frozen_stages=1).train()
    optimizer = torch.optim.SGD([p for p in backbone.parameters() if p.requires_grad], lr=1.0)
    before = copy.deepcopy(backbone.state_dict())
    # not the square: after a norm its mean is constant
    sum(feature_map.sin().sum() for feature_map in backbone(image(2, 48, 48))).backward()
    optimizer.step()
    frozen = {id(t) for part in freezable_stages(backbone)[:2] for m in part for t in tensors_of(m)}
    after = backbone.state_dict(keep_vars=True)
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    free = {name for name, value in after.items() if id(value) not in frozen}
    assert changed == {name for name in free if not name.endswith('relative_position_index')}
    before = copy.deepcopy(dict(backbone.named_buffers()))
    backbone.norm_eval = True
    backbone.train()(image(2, 48, 48))
    assert all(torch.equal(value, before[key]) for key, value in backbone.named_buffers())


def test_eval_mode_begins_without_train(config):
    """As in a training loop of plain torch."""
    for options in (dict(frozen_stages=1), dict(norm_eval=True)):
        backbone = build(config, **options)
        modes = [module.training for module in backbone.modules()]
        assert backbone.training
        assert modes == [module.training for module in backbone.train().modules()]


def tensors_of(part):
    return [part] if isinstance(part, nn.Parameter) else [*part.parameters(), *part.buffers()]


def test_state_dict_and_copies(config):
    source, target = build(config).eval(), build(config).eval()
    for p in source.parameters():
        nn.init.normal_(p, std=0.1)
    target.load_state_dict(source.state_dict())
    with torch.device('meta'):  # as large models are built for FSDP
        empty = build(config).eval()
    empty.to_empty(device='cpu').load_state_dict(source.state_dict())
    x = image(1, 32, 48)
    for network in (target, empty, copy.deepcopy(source)):  # model averaging makes a copy
        for actual, expected in zip(network(x), source(x), strict=True):
            assert torch.equal(actual, expected)


def test_drop_path_drops_in_training_only(config):
    backbone = build(config, drop_path_rate=0.5)
    x = image(8, 48, 48)
    assert not torch.equal(backbone.train()(x)[-1], backbone(x)[-1])
    assert torch.equal(backbone.eval()(x)[-1], backbone(x)[-1])


@pytest.mark.parametrize('name', others_in_zoo(VARIANTS, ['bixt conv, LPI']))
@torch.no_grad()
def test_compilers_and_exporters_accept_the_whole_network(name, fresh_compiler, tmp_path):
    backbone, x = build(VARIANTS[name]).eval(), image(1, 64, 48)
    expected = backbone(x)
    compiled = torch.compile(backbone, fullgraph=True, backend='eager')
    assert_close(compiled(x), expected, 1e-5)
    assert_close(torch.export.export(backbone, (x,)).module()(x), expected, 1e-5)
    torch.jit.trace(backbone, x).save(tmp_path / 'traced.pt')
    assert_close(torch.jit.load(tmp_path / 'traced.pt')(x), expected, 1e-5)


@torch.no_grad()
def test_batch_norms_after_convolutions_can_be_fused(config):
    """With mmcv's function. Others (after a GELU, before padding) must not be fused."""
    fuse_conv_bn = pytest.importorskip('mmcv.cnn').fuse_conv_bn
    backbone, x = build(config).eval(), image(2, 48, 32)
    for norm in (m for m in backbone.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.normal_(norm.bias)
        nn.init.normal_(norm.running_mean)
        for value in (norm.weight, norm.running_var):
            nn.init.uniform_(value, 0.5, 2)
    expected = backbone(x)
    assert_close(fuse_conv_bn(backbone)(x), expected, 1e-4)


@pytest.mark.parametrize('size', [(1, 1), (15, 40)])
@pytest.mark.parametrize('name', [name for name in VARIANTS if 'stl' not in name])
def test_feature_maps_of_small_images_are_finite(name, size):
    """In 'stl' torch refuses the convolutions, which have no padding."""
    backbone = build(VARIANTS[name]).eval()
    maps = backbone(image(1, *size))
    sum(feature_map.sin().sum() for feature_map in maps).backward()
    assert all(x.isfinite().all() for x in [*maps, *(p.grad for p in backbone.parameters())])

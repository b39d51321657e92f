"""Changes that users make to modules: hooks, replaced layers, parametrizations, quantisation.

Fast paths use weights without calling the modules that hold them, so each of these changes must
switch them off where it is made.
"""

import copy
import warnings
from collections import Counter
from contextlib import contextmanager

import pytest
import timm
import torch
from helpers import assert_close, image
from torch import nn
from torch.autograd import forward_ad
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations, prune
from variants import FAMILIES, VARIANTS, build

from mmbixt.ops import use_ops


def assert_same(actual, expected, tolerance=1e-4):
    for a, b in zip(actual, expected, strict=True):
        assert_close(a, b, tolerance)


CONTAINERS = (nn.ModuleList, nn.ModuleDict)


def make(config):
    """With weights so large that every part changes the output, and without batch statistics."""
    backbone = build(config).eval()
    for name, p in backbone.named_parameters():
        nn.init.normal_(p, 1.0 if name.endswith('norm.weight') else 0.0, 0.2)
    return backbone


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def backbone(request):
    return make(request.param)


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES)
def family(request):
    return make(request.param)


def holders(backbone):
    """The modules that hold weights, themselves or in their children, by name."""
    return {
        name: module
        for name, module in backbone.named_modules()
        if not isinstance(module, CONTAINERS) and any(True for _ in module.parameters())
    }


def linears(backbone):
    return [name for name, module in backbone.named_modules() if type(module) is nn.Linear]


def results(backbone):
    """Feature maps, then the gradient of the image; weights keep theirs in ``grad``."""
    x = image(2, 48, 33).requires_grad_()
    maps = backbone(x)
    sum(m.sin().sum() for m in maps).backward()
    return [*maps, x.grad]


@contextmanager
def replaced(backbone, name, module):
    original = backbone.get_submodule(name)
    backbone.set_submodule(name, module)
    yield
    backbone.set_submodule(name, original)


@contextmanager
def calls_of(module):
    """A list that gets an entry for each call."""
    called = []
    with module.register_forward_hook(lambda *_: called.append(1)):
        yield called


HOOKS = ('forward', 'forward_pre', 'full_backward', 'global')


@pytest.mark.parametrize('path', ['auto', 'reference'])
def test_each_module_with_weights_is_called_once(backbone, path):
    """For each kind of hook separately, since a single one must switch fast paths off."""
    expected = results(backbone)
    names = {module: name for name, module in holders(backbone).items()}
    for kind in HOOKS:
        called = Counter()

        def count(module, *_, called=called):
            called[names.get(module)] += 1

        if kind == 'global':
            handles = [register_module_forward_hook(count)]
        else:
            handles = [getattr(m, f'register_{kind}_hook')(count) for m in names]
        try:
            with use_ops(path), warnings.catch_warnings():
                # of layers whose input needs no gradient (the position encoding)
                warnings.filterwarnings('ignore', 'Full backward hook is firing')
                actual = results(backbone)
        finally:
            for handle in handles:
                handle.remove()
        del called[None]
        assert called == dict.fromkeys(names.values(), 1), kind
        assert_same(actual, expected)


class Delegating(nn.Module):
    """A wrapper that also has the attributes of the wrapped module, as many wrappers do."""

    def __init__(self, wrapped):
        super().__init__()
        self.wrapped = wrapped

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.wrapped, name)

    def forward(self, *inputs):
        return self.wrapped(*inputs)


@torch.no_grad()
def test_a_single_hooked_or_wrapped_module_is_called(backbone):
    """One module at a time: nothing else switches its fast path off."""
    for name, module in list(holders(backbone).items())[1:]:  # the first is the backbone
        is_leaf = isinstance(module, nn.Linear | nn.LayerNorm | nn.Conv2d)
        changed = module if is_leaf else Delegating(module)
        with replaced(backbone, name, changed), calls_of(changed) as called:
            backbone(image(1, 33, 48))
        assert called == [1], name


class Zero(nn.Module):
    def forward(self, x):
        return 0 * x


@torch.no_grad()
def test_replaced_activations_norms_and_stochastic_depth_are_called(backbone):
    found = Counter()
    for name, module in list(backbone.named_modules()):
        kinds = (isinstance(module, nn.GELU), isinstance(module, nn.LayerNorm))
        if any(kinds) or name.endswith('drop_path'):
            zero = Zero()
            with replaced(backbone, name, zero), calls_of(zero) as called:
                backbone(image(1, 33, 48))
            assert called, name
            found[kinds] += 1
    assert len(found) == 3


class Adapted(nn.Linear):
    """A linear layer that adds something, as LoRA does."""

    def __init__(self, base):
        super().__init__(base.in_features, base.out_features, base.bias is not None)
        self.load_state_dict(base.state_dict())
        self.delta = nn.Parameter(0.1 * torch.randn_like(base.weight))

    def forward(self, x):
        return super().forward(x) + x @ self.delta.t()


def test_adapted_layers_equal_layers_with_merged_weights(backbone):
    adapted, merged = copy.deepcopy(backbone), copy.deepcopy(backbone)
    for name in linears(backbone):
        layer = Adapted(backbone.get_submodule(name))
        adapted.set_submodule(name, layer)
        with torch.no_grad():
            merged.get_submodule(name).weight += layer.delta
    assert_same(results(adapted), results(merged))
    largest = max(p.grad.abs().max() for p in merged.parameters())
    for name in linears(backbone):
        delta, weight = adapted.get_submodule(name).delta, merged.get_submodule(name).weight
        assert (delta.grad - weight.grad).abs().max() <= 1e-4 * largest, name


def weight_norm(layer):
    parametrizations.weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0 *= 1.5


def pruned(layer):
    prune.l1_unstructured(layer, 'weight', 0.5)


@pytest.mark.parametrize('change', [weight_norm, pruned])
def test_computed_weights_are_used(family, change):
    changed, plain = copy.deepcopy(family), copy.deepcopy(family)
    for name, module in family.named_modules():
        if type(module) in (nn.Linear, nn.Conv2d):
            layer = changed.get_submodule(name)
            change(layer)
            factor = 1.5 if change is not pruned else layer.weight_mask
            with torch.no_grad():
                plain.get_submodule(name).weight *= factor
    assert_same(results(changed), results(plain))


def without_bias(layer):
    return nn.Linear(layer.in_features, layer.out_features, bias=False)


def circular(layer):
    layer = copy.deepcopy(layer)
    layer.padding_mode = 'circular' if layer.kernel_size[0] % 2 else 'zeros'
    return layer


@torch.no_grad()
def test_layers_with_other_options_are_computed_with_these(backbone):
    """The result is the same as with hooks, with which each layer is called."""
    x = image(1, 96, 100)  # enough tokens for XCiT's Gram matrix
    changes = {nn.Linear: without_bias, nn.Conv2d: circular}
    for name, module in list(backbone.named_modules()):
        if type(module) in changes and 'embed' not in name:
            with replaced(backbone, name, changes[type(module)](module)):
                maps = backbone(x)
                with register_module_forward_hook(lambda *_: None):
                    assert_same(maps, backbone(x))


def test_dynamic_quantisation_changes_every_linear_layer(family):
    assert {type(m) for m in family.modules() if isinstance(m, nn.Linear)} == {nn.Linear}
    expected = family(image(1, 64, 48))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # torch.ao will become a separate package
        quantised = torch.ao.quantization.quantize_dynamic(family, {nn.Linear})
    names = [
        name
        for name, module in quantised.named_modules()
        if isinstance(module, torch.ao.nn.quantized.dynamic.Linear)
    ]
    assert names == linears(family)
    assert linears(quantised) == []
    for actual, wanted in zip(quantised(image(1, 64, 48)), expected, strict=True):
        assert not torch.equal(actual, wanted)
        assert (actual - wanted).std() < 0.2 * wanted.std()


def test_checkpointing_computes_again_on_the_path_of_the_forward_pass(backbone):
    backbone.with_cp = True
    for path in ('reference', 'portable', 'cpu'):
        with use_ops(path):
            maps = backbone(image(1, 48, 33))
        sum(m.sin().sum() for m in maps).backward()


def test_forward_mode_derivatives(family):
    """Without timm's fused attention, which does not support them."""
    for module in family.modules():
        if isinstance(module, timm.layers.Attention):
            module.fused_attn = False
    x, direction = image(1, 48, 33), torch.randn(1, 3, 48, 33)
    with forward_ad.dual_level(), torch.no_grad():
        maps = family.requires_grad_(False)(forward_ad.make_dual(x, direction))
        tangents = [forward_ad.unpack_dual(m).tangent for m in maps]
    family, step = family.double(), 1e-6
    with torch.no_grad():
        ahead, behind = (family(x.double() + s * direction.double()) for s in (step, -step))
    for tangent, a, b in zip(tangents, ahead, behind, strict=True):
        assert_close(tangent.double(), (a - b) / (2 * step), 1e-3)

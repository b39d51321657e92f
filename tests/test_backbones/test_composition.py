"""Changes that users make to modules have an effect: LoRA, quantisation and FSDP replace them."""

import pytest
import torch
from helpers import assert_close, image
from torch import nn
from variants import VARIANTS, build


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def backbone(request):
    """With weights so large that every part changes the output, and without batch statistics."""
    backbone = build(request.param).eval()
    for name, p in backbone.named_parameters():
        nn.init.normal_(p, 1.0 if name.endswith('norm.weight') else 0.0, 0.2)
    return backbone


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
    """One module at a time."""
    x = image(1, 96, 100)
    expected = backbone(x)
    called = []
    for name, module in list(backbone.named_modules())[1:]:  # the first is the backbone
        if isinstance(module, nn.ModuleList | nn.ModuleDict) or not list(module.parameters()):
            continue
        is_leaf = isinstance(module, nn.Linear | nn.LayerNorm | nn.Conv2d)
        changed = module if is_leaf else Delegating(module)
        called.clear()
        backbone.set_submodule(name, changed)
        with changed.register_forward_hook(lambda *_: called.append(1)):
            assert_close(backbone(x), expected, 1e-4)
        backbone.set_submodule(name, module)
        assert called == [1], name

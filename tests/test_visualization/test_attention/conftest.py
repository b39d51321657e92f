from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn


def randomise(model: nn.Module) -> nn.Module:
    """Weights that make attention uneven, where fresh ones make it nearly even."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=2 * parameter[0].numel() ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()


@torch.no_grad()
def inputs_and_outputs(
    backbone: nn.Module, layers: Mapping[str, nn.Module], x: Tensor
) -> dict[str, tuple]:
    """What goes into layers and comes out of them when the backbone runs as it always does."""
    found = {}

    def keep(name):
        return lambda module, inputs, output: found.update({name: (inputs, output)})

    handles = [m.register_forward_hook(keep(name)) for name, m in layers.items()]
    backbone(x)
    for handle in handles:
        handle.remove()
    return found


@pytest.fixture
def look():
    """Randomise a backbone and look into it."""

    def run(backbone, layers_of, x):
        layers = layers_of(randomise(backbone))
        found = inputs_and_outputs(backbone, layers, x)
        return [(layers[name], *found[name]) for name in layers]

    return run

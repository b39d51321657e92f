import pytest
import torch
from torch import nn

from mmbixt.visualization.attention import FAMILIES
from mmbixt.visualization.attention.drawing import Scene


@pytest.fixture
def look():
    """Layers of a backbone by name, as its pictures record them, and what the layers put out."""

    @torch.no_grad()
    def run(backbone: nn.Module, x: torch.Tensor) -> dict[str, tuple]:
        for parameter in backbone.parameters():  # uneven attention, where fresh weights are even
            if parameter.dim() > 1:
                parameter.normal_(std=2 * parameter[0].numel() ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        pictures = FAMILIES[type(backbone)](backbone.eval(), x, Scene(None, *x.shape[2:], (0, 0)))
        layers = pictures.record(list(pictures.attention_layers(backbone)))
        return {layer.name: (layer, layer.module(*layer.inputs)) for layer in layers}

    return run

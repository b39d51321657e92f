from torch import Tensor, nn

from mmbixt.layers.as_built import is_as_built
from mmbixt.ops.linear import linear


def apply_linear(layer: nn.Module, x: Tensor) -> Tensor:
    """``layer(x)``, (...,C) to (...,out), by :func:`mmbixt.ops.linear` if the layer is unchanged.

    A function, and not a subclass of ``nn.Linear``, because tools that quantise or adapt layers
    look for ``nn.Linear``.
    """
    if is_as_built(layer, nn.Linear):
        return linear(x, layer.weight, layer.bias)
    return layer(x)


def init_linear(module: nn.Module) -> None:
    """The initialisation of XCiT, BiFormer and Swin, for ``network.apply``: linear layers only."""
    from timm.layers import trunc_normal_

    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)

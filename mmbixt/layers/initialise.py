from torch import nn


def init_linear(module: nn.Module) -> None:
    """The initialisation of XCiT, BiFormer and Swin, for ``network.apply``: linear layers only."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)

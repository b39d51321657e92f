from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import max_pool2d


class MaxPool(nn.Module):
    """Max pooling without overlap; a side shorter than the window becomes one cell."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """(B,C,H,W) to (B,C,floor(H/factor),floor(W/factor)), at least one cell."""
        return max_pool2d(x, [min(self.factor, side) for side in x.shape[-2:]])


def make_resampler(
    channels: int, in_stride: int, out_stride: int, make_norm: Callable[[int], nn.Module]
) -> nn.Module:
    """Upsampling by transposed convolutions, with norm and GELU between them, or max pooling."""
    if out_stride > in_stride:
        return MaxPool(out_stride // in_stride)
    layers: list[nn.Module] = []
    while in_stride > out_stride:
        if layers:
            layers += [make_norm(channels), nn.GELU()]
        layers.append(nn.ConvTranspose2d(channels, channels, kernel_size=2, stride=2))
        in_stride //= 2
    return nn.Sequential(*layers) if layers else nn.Identity()

"""Tokens (B,N,C) as feature maps (B,C,H,W) in channels-last memory format, and layers on these."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d


def channels_last(image: Tensor) -> Tensor:
    """An image (B,C,H,W) in the memory format of tokens.

    Convolutions keep the memory format of their input. From an image in the default format, the
    tokens would be transposed in memory, and each layer would copy them.
    """
    # not contiguous(memory_format=...), which vmap and exporters for several sizes do not support
    return image.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def tokens_to_map(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """(B,N,C) to (B,C,H,W) in channels-last memory format: a view, nothing is copied."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)


def map_to_tokens(feature_map: Tensor) -> Tensor:
    """(B,C,H,W) to (B,N,C): a view where the feature map is channels-last."""
    return feature_map.permute(0, 2, 3, 1).flatten(1, 2)


def as_output(feature_map: Tensor) -> Tensor:
    """A feature map as it leaves a network: a contiguous copy of the same shape.

    Operators of mmcv, such as RoIAlign, read memory in the order of the dimensions, whatever the
    strides are. It is a copy even where ``is_contiguous()`` is true, because with one channel or
    one cell the strides may still be channels-last, which the next convolutions would keep.
    """
    return feature_map.clone(memory_format=torch.contiguous_format)


class LocalPatchInteraction(nn.Module):
    """XCiT's LPI, depthwise convolutions of 3 x 3 tokens: ``conv2(bn(gelu(conv1(x))))``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        # before conv1, because mmcv.cnn.fuse_conv_bn would otherwise fuse the two across the GELU
        self.bn = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.act = nn.GELU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B,N,C) of a grid (H,W), row by row, to (B,N,C)."""
        x = self.bn(self.act(self.conv1(tokens_to_map(tokens, grid))))
        return map_to_tokens(self.conv2(x))


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

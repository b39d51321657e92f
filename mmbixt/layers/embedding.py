"""Patch embeddings, by a linear layer of each patch or a few convolutions, and positions.

Both embeddings give ``ceil(H/stride) x ceil(W/stride)`` tokens for an image of any size.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from mmbixt.layers.sizes import extend_image


class LinearPatchEmbed(nn.Module):
    """Square patches, ``stride`` apart (overlapping if the stride is less than the patch's side).

    Images are padded with zeros at the right and the bottom to multiples of the stride. The
    authors' code uses images of one size, which need no padding.

    Args:
        channels: width C of the tokens.
        stride: pixels from one token to the next.
        in_channels: of the image.
        patch_size: side of a patch in pixels, at least the stride; an even number more than it.
    """

    def __init__(
        self, channels: int, stride: int = 16, in_channels: int = 3, patch_size: int = 16
    ) -> None:
        super().__init__()
        self.stride = stride
        # each patch is centred on its cell, so that the grid has H/stride x W/stride cells
        padding = (patch_size - stride) // 2
        self.proj = nn.Conv2d(in_channels, channels, patch_size, stride, padding)

    def forward(self, image: Tensor) -> Tensor:
        """(B,in_channels,H,W) to (B,C,ceil(H/stride),ceil(W/stride))."""
        return self.proj(extend_image(image, self.stride))


class ConvPatchEmbed(nn.Module):
    """A 3x3 convolution of stride 2, batch norm and GELU for each halving of the resolution.

    Args:
        channels: width C of the tokens. Each convolution has twice the channels of the one before.
        stride: pixels from one token to the next, a power of two.
        in_channels: of the image.
    """

    def __init__(self, channels: int, stride: int = 16, in_channels: int = 3) -> None:
        super().__init__()
        halvings = stride.bit_length() - 1
        widths = [in_channels, *(channels // 2**i for i in reversed(range(halvings)))]
        layers = []
        for c_in, c_out in pairwise(widths):
            conv = nn.Conv2d(c_in, c_out, 3, stride=2, padding=1, bias=False)
            layers += [nn.Sequential(conv, nn.BatchNorm2d(c_out)), nn.GELU()]
        self.proj = nn.Sequential(*layers[:-1])  # no GELU after the last batch norm

    def forward(self, image: Tensor) -> Tensor:
        """(B,in_channels,H,W) to (B,C,ceil(H/stride),ceil(W/stride))."""
        return self.proj(image)


FEATURES_PER_AXIS = 32


def sinusoids(position: Tensor) -> Tensor:
    """Sines and cosines (...,32) of relative positions (...), of an image or of points, in float32.

    The angles of a position p, of which 0 to 1 is the range of an axis, are::

        angle[i] = 2 pi p / 10000^(2 floor(i / 2) / 32),   i = 0, ..., 31

    Even channels i are the sine of the angle, odd ones the cosine.
    """
    channel = torch.arange(FEATURES_PER_AXIS, dtype=torch.float32, device=position.device)
    divisor = 10000 ** (2 * torch.div(channel, 2, rounding_mode='floor') / FEATURES_PER_AXIS)
    angle = (position * (2 * math.pi))[..., None] / divisor
    return torch.stack((angle[..., 0::2].sin(), angle[..., 1::2].cos()), dim=-1).flatten(-2)


def fourier_features(height: int, width: int, device: torch.device | str = 'cpu') -> Tensor:
    """:func:`sinusoids` of the relative position in a grid, (64,H,W) in float32.

    Along an axis of n cells the positions 1, ..., n are scaled to (0, 1], so that a grid of any
    size has an encoding, without interpolation. Channels 0 to 31 encode the row, 32 to 63 the
    column.
    """

    def axis(n: int) -> Tensor:
        position = torch.arange(1, n + 1, dtype=torch.float32, device=device)
        return sinusoids(position / (n + 1e-6))

    rows = axis(height).t()[:, :, None].expand(-1, height, width)
    columns = axis(width).t()[:, None, :].expand(-1, height, width)
    return torch.cat((rows, columns))


class FourierPositionEncoding(nn.Module):
    """Adds Fourier features of its grid, projected, to a feature map; in BiXT and XCiT."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.token_projection = nn.Conv2d(2 * FEATURES_PER_AXIS, channels, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B,C,H,W) to (B,C,H,W)."""
        features = fourier_features(*x.shape[2:], x.device).to(x.dtype)
        return x + self.token_projection(features[None])

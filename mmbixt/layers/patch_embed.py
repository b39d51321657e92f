"""From an image to tokens: one linear layer of each patch, or a few small convolutions.

Both give ``ceil(H/stride) x ceil(W/stride)`` tokens, whatever the size of the image.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad

from mmbixt.ops.padding import padding_to_multiple


class LinearPatchEmbed(nn.Module):
    """Patches of 16 x 16 pixels, ``stride`` apart (overlapping where that is less).

    An image whose sides are no multiples of the stride is padded with zeros at the right and at
    the bottom; the authors' code has images of one size and needs no padding.

    Args:
        channels: width C of the tokens.
        stride: pixels from one token to the next.
        in_channels: of the image.
    """

    def __init__(self, channels: int, stride: int = 16, in_channels: int = 3) -> None:
        super().__init__()
        self.stride = stride
        # centres a patch on its cell, so that the grid is exactly H/stride x W/stride
        self.proj = nn.Conv2d(in_channels, channels, 16, stride, padding=(16 - stride) // 2)

    def forward(self, image: Tensor) -> Tensor:
        """(B,in_channels,H,W) to (B,C,ceil(H/stride),ceil(W/stride))."""
        bottom, right = (padding_to_multiple(side, self.stride) for side in image.shape[-2:])
        return self.proj(pad(image, (0, right, 0, bottom)))


class ConvPatchEmbed(nn.Module):
    """A 3x3 convolution of stride 2, batch norm and GELU for each halving of the resolution.

    Args:
        channels: width C of the tokens; each convolution before the last has half the next's.
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
        self.proj = nn.Sequential(*layers[:-1])  # the tokens themselves are linear

    def forward(self, image: Tensor) -> Tensor:
        """(B,in_channels,H,W) to (B,C,ceil(H/stride),ceil(W/stride))."""
        return self.proj(image)

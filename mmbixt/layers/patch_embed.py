"""From an image to tokens: a linear layer of each patch, or a few small convolutions.

Both give ``ceil(H/stride) x ceil(W/stride)`` tokens for an image of any size.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad

from mmbixt.layers.padding import padding_to_multiple
from mmbixt.layers.precision import call_in_float32
from mmbixt.layers.tracing import holds


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
        bottom, right = (padding_to_multiple(side, self.stride) for side in image.shape[-2:])
        if not holds(bottom + right == 0):  # padding by nothing would copy the image
            image = pad(image, (0, right, 0, bottom))
        return call_in_float32(self.proj, image)


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

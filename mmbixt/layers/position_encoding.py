import math

import torch
from torch import Tensor, nn

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
    """Fourier features of a grid and a learned projection; in BiXT and XCiT."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.token_projection = nn.Conv2d(2 * FEATURES_PER_AXIS, channels, kernel_size=1)

    def forward(self, height: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The encoding of a grid, (1,C,H,W), on the device and in the dtype of the tokens."""
        # Its arguments are sizes: a feature map would get no gradient, so its hooks would not run.
        return self.token_projection(fourier_features(height, width, device).to(dtype)[None])

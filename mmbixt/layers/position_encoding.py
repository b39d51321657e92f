import math

import torch
from torch import Tensor, nn

FEATURES_PER_AXIS = 32


def fourier_features(height: int, width: int, device: torch.device | str = 'cpu') -> Tensor:
    """Sines and cosines of the relative position in a grid, (64,H,W) in float32.

    Along an axis of n cells the positions p = 1, ..., n are scaled to (0, 2 pi], so that a grid of
    any size has an encoding, without interpolation::

        angle[i] = 2 pi p / (n 10000^(2 floor(i / 2) / 32)),   i = 0, ..., 31

    Even channels i are the sine of the angle, odd ones the cosine; channels 0 to 31 encode the row,
    32 to 63 the column.
    """
    channel = torch.arange(FEATURES_PER_AXIS, dtype=torch.float32, device=device)
    divisor = 10000 ** (2 * torch.div(channel, 2, rounding_mode='floor') / FEATURES_PER_AXIS)

    def axis(n: int) -> Tensor:
        position = torch.arange(1, n + 1, dtype=torch.float32, device=device)
        angle = (position / (n + 1e-6) * (2 * math.pi))[:, None] / divisor
        return torch.stack((angle[:, 0::2].sin(), angle[:, 1::2].cos()), dim=2).flatten(1)

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

from torch import Tensor, nn
from torch.nn.functional import conv2d

from mmbixt.layers.maps import map_to_tokens, tokens_to_map


class LocalPatchInteraction(nn.Module):
    """XCiT's LPI: two depthwise 3x3 convolutions that let neighbouring tokens talk.

    Args:
        channels: width C of the tokens.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.act = nn.GELU()
        self.bn = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, tokens: Tensor, grid: tuple[int, int], scale: Tensor | None = None) -> Tensor:
        """Tokens (B,N,C) of a grid (H,W), row by row, to (B,N,C), times a scale (C,) if given."""
        x = self.bn(self.act(self.conv1(tokens_to_map(tokens, grid))))
        weight, bias = self.conv2.weight, self.conv2.bias
        if scale is not None:  # of the few weights, not of all tokens
            weight, bias = scale[:, None, None, None] * weight, scale * bias
        return map_to_tokens(conv2d(x, weight, bias, padding=1, groups=len(weight)))

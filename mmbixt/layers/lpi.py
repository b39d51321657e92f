from torch import Tensor, nn

from mmbixt.layers.maps import map_to_tokens, tokens_to_map


class LocalPatchInteraction(nn.Module):
    """XCiT's LPI, which combines neighbouring tokens: ``conv2(bn(gelu(conv1(x))))``.

    Both convolutions are depthwise, of 3 x 3 tokens.
    """

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

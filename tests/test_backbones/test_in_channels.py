"""Images of other channels than three, and weights for three."""

import pytest
import torch
from helpers import assert_close
from torch import nn
from variants import FAMILIES, build


def stem(network):
    return next(x for x in network.modules() if isinstance(x, nn.Conv2d)).weight


@pytest.mark.parametrize('family', FAMILIES)
def test_stem_of_a_file_for_three_channels_is_adapted_on_request(family, tmp_path):
    rgb = build(FAMILIES[family]).eval()
    torch.save(rgb.state_dict(), tmp_path / 'rgb.pth')
    pretrained = dict(type='Pretrained', checkpoint=str(tmp_path / 'rgb.pth'), adapt_stem=True)
    expected = {1: stem(rgb).sum(1, True), 4: stem(rgb)[:, [0, 1, 2, 0]] * 0.75}
    for channels, weight in expected.items():
        config = {**FAMILIES[family], 'in_channels': channels}
        adapted = build({**config, 'init_cfg': pretrained}).eval()
        adapted.init_weights()
        assert_close(stem(adapted), weight)
        build(config).load_state_dict(adapted.state_dict())  # its own weights load as ever
        if channels == 1:  # what the file makes of a grey image
            grey = torch.rand(1, 1, 48, 32)
            assert_close(adapted(grey), rgb(grey.expand(-1, 3, -1, -1)))

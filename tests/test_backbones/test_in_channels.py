"""Images of other channels than three, and weights for three."""

import pytest
import torch
from helpers import assert_close
from torch import nn
from variants import FAMILIES, build

from mmbixt.checkpoints.errors import CheckpointMismatchError


@pytest.mark.parametrize('family', FAMILIES)
def test_stem_of_a_file_for_three_channels_is_adapted_only_on_request(family, tmp_path):
    config, path = FAMILIES[family], str(tmp_path / 'rgb.pth')
    rgb = build(config).eval()
    torch.save(rgb.state_dict(), path)
    pretrained = dict(type='Pretrained', checkpoint=path)
    for channels in (1, 4):
        given = {**config, 'in_channels': channels}
        adapted = build({**given, 'init_cfg': {**pretrained, 'adapt_stem': True}}).eval()
        adapted.init_weights()
        grey = torch.rand(1, 1, 48, 32, generator=torch.Generator().manual_seed(0))
        if channels == 1:  # summed: what the file makes of a grey image
            expected = rgb(grey.expand(-1, 3, -1, -1))
            assert_close(adapted(grey), expected)
        stems = [
            next(m for m in x.modules() if isinstance(m, nn.Conv2d)).weight for x in (rgb, adapted)
        ]
        repeated = stems[0][:, [0, 1, 2, 0]] * 0.75 if channels == 4 else stems[0].sum(1, True)
        assert_close(stems[1], repeated)
        again = build(given)  # its own weights load as ever
        again.load_state_dict(adapted.state_dict())
    with pytest.raises(CheckpointMismatchError, match=r'for images of 3 .*adapt_stem=True'):
        build({**given, 'init_cfg': pretrained}).init_weights()

"""What the log says about where training starts."""

import pytest
import torch

from mmbixt.backbones import BiXT, base

SMALL = dict(embed_dims=32, num_heads=2, depth=2)


@pytest.fixture
def logged(monkeypatch):
    lines = []
    monkeypatch.setattr(base, 'print_log', lambda text, *_: lines.append(text))
    return lines


def test_how_many_weights_were_loaded_from_where(logged, tmp_path):
    file, state = str(tmp_path / 'plain.pth'), BiXT(SMALL).state_dict()
    torch.save(state, file)
    start = dict(type='Pretrained', checkpoint=file)
    BiXT(SMALL, init_cfg=start).init_weights()
    assert logged == [f'BiXT: {len(state)} of {len(state)} weights loaded from {file}']
    logged.clear()
    backbone = BiXT(SMALL, token_refiner='lpi', init_cfg=start)
    backbone.init_weights()
    assert logged[0].startswith(f'BiXT: {len(state)} of {len(backbone.state_dict())} weights')
    assert logged[1].startswith('BiXT: not in the file, so initialised afresh: ')


def test_random_weights_and_statistics_that_nobody_has_made(logged):
    backbone = BiXT(SMALL, norm_eval=True)
    backbone.init_weights()
    assert [line.partition(',')[0] for line in logged] == [
        'BiXT: random weights',
        'BiXT: norm_eval=True keeps batch statistics that no training has made',
    ]

import pytest
from mmengine.config import Config

from mmbixt.cli import doubtful_options

CONFIG = dict(
    train_cfg=dict(max_iters=10), model=dict(backbone=dict(arch='tiny')), hooks=[dict(type='A')]
)


@pytest.mark.parametrize(
    ('option', 'similar'),
    [
        ('train_cfg.max_iter', 'max_iters'),
        ('modle.backbone.arch', 'model'),
        ('hooks.0.typ', 'type'),
    ],
)
def test_an_option_that_is_almost_there_is_pointed_out(option, similar):
    (note,) = doubtful_options(Config(CONFIG), {option: 1})
    assert note.startswith(f'--cfg-options {option}: ')
    assert f'which has {similar}.' in note


@pytest.mark.parametrize(
    'option',
    [
        'train_cfg.max_iters',
        'hooks.0.type',
        'hooks.1.typ',
        'model.backbone.drop_path_rate',
        'resume',
        'a.b.c',
    ],
)
def test_others_are_not(option):
    assert doubtful_options(Config(CONFIG), {option: 1}) == []

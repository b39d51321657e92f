"""The README's config, as it stands there, on the stock config that it inherits."""

import re
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

README = Path(__file__).parents[2] / 'README.md'


def test_snippet_builds_and_runs():
    snippet = re.search(r"```python\n(_base_ = 'mmseg::.*?)```", README.read_text(), re.DOTALL)[1]
    cfg = Config.fromstring(snippet, '.py')
    assert cfg.model.backbone.pop('init_cfg').checkpoint == 'bixt://tiny-16-d13'
    init_default_scope('mmseg')
    text = cfg.pretty_text.replace("'SyncBN'", "'BN'")
    model = MODELS.build(Config.fromstring(text, '.py').model).eval()
    with torch.no_grad():
        assert model(torch.randn(1, 3, 64, 96)).shape == (1, 150, 16, 24)

"""What docs/boundary.md shows for configs can be built as it stands there."""

import re
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import METRICS, init_default_scope

DOCS = Path(__file__).parents[2] / 'docs/boundary.md'
SNIPPETS = re.findall(r'```python\n(val_evaluator.*?)```', DOCS.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ('scope', 'snippet'), zip(('mmseg', 'mmdet'), SNIPPETS, strict=True), ids=('mmseg', 'mmdet')
)
def test_evaluators_build(scope, snippet):
    pytest.importorskip(scope)
    init_default_scope(scope)
    evaluators = Config.fromstring(snippet, '.py').val_evaluator
    for evaluator in evaluators if isinstance(evaluators, list) else [evaluators]:
        evaluator.pop('ann_file', None)  # not there
        assert METRICS.build(evaluator) is not None

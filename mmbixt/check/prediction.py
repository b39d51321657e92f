"""Whether a model can predict the images of validation and test: else a run fails in the middle."""

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from mmengine.dataset import pseudo_collate
from timm.layers import to_2tuple
from torch import nn

from mmbixt.check.metrics import metrics_of
from mmbixt.check.names import explain
from mmbixt.check.split import Split
from mmbixt.config import within
from mmbixt.frameworks import is_of_project

# others may come from operators that do not compute shapes alone
CERTAIN = (AssertionError, AttributeError, IndexError, KeyError, ZeroDivisionError)
WINDOWS = 40  # of sliding inference; with more, the check would take too long
OF_DETECTORS = ('ori_shape', 'img_shape', 'scale_factor')


def prediction_problems(
    cfg: Mapping[str, Any], model: nn.Module, splits: list[Split]
) -> Iterator[str]:
    """Predict the first image of each split: segmentors on shapes, with their ``test_cfg``.

    Detectors need values, for non-maximum suppression; of their images the names are checked that
    all of them read.
    """
    model.to('meta')  # the data preprocessor, too
    bases = [kind.__name__ for kind in type(model).__mro__]
    for split in splits:
        if split.name == 'train' or not isinstance(split.first, dict):
            continue
        if 'BaseDetector' in bases and not is_of_project(type(model)):
            yield from _missing_names(split, cfg.get(f'{split.name}_evaluator'))
        if not type(model).__module__.startswith('mmseg.'):  # a user's may have side effects
            continue
        height, width = split.first['inputs'].shape[-2:]
        if height * width > WINDOWS * _stride(cfg) ** 2:
            continue
        try:
            model.test_step(pseudo_collate([split.first]))
        except Exception as error:  # any, because operators are run without values
            text = explain(error, cfg.get('default_scope'))
            if isinstance(error, CERTAIN) and not re.search('meta|CPU tensor|CUDA', text):
                yield (
                    f'model.test_cfg, {split.name}_dataloader: the model cannot predict the first '
                    f'image: {text}'
                )


def _stride(cfg: Mapping[str, Any]) -> float:
    test_cfg = within(cfg, 'model', 'test_cfg')
    is_slide = test_cfg.get('mode') == 'slide'
    return min(to_2tuple(test_cfg.get('stride', inf))) or inf if is_slide else inf


def _missing_names(split: Split, evaluator: Any) -> Iterator[str]:
    known = getattr(split.first.get('data_samples'), 'metainfo', None) or {}
    # CornerNet's heads read the border of an image in place of its scale
    needed = [x for x in OF_DETECTORS if not (x == 'scale_factor' and 'border' in known)]
    if any(kind in ('CocoMetric', 'BoundaryCocoMetric') for _, kind, _ in metrics_of(evaluator)):
        needed.insert(0, 'img_id')
    if known and (missing := [name for name in needed if name not in known]):
        yield (
            f'{split.name}_dataloader.dataset.pipeline: detectors and their metrics need '
            f'{", ".join(missing)} in meta_keys of PackDetInputs, and a Resize before it.'
        )

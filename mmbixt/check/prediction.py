"""Whether a model can predict the images of validation and test: else a run fails in the middle."""

import re
from collections.abc import Iterator

from mmengine.dataset import pseudo_collate
from torch import nn

from mmbixt.check.data import Split
from mmbixt.check.names import explain

# others may come from operators that do not compute shapes alone
CERTAIN = (AssertionError, AttributeError, IndexError, KeyError, ZeroDivisionError)
OF_DETECTORS = ('img_id', 'ori_shape', 'img_shape', 'scale_factor')


def prediction_problems(model: nn.Module, splits: list[Split], scope: str) -> Iterator[str]:
    """Predict the first image of each split: segmentors on shapes, with their ``test_cfg``.

    Detectors need values, for non-maximum suppression; of their images the names are checked that
    all of them read.
    """
    model.to('meta')  # the data preprocessor, too
    for split in splits:
        if split.name == 'train' or not isinstance(split.first, dict):
            continue
        if scope == 'mmdet':
            yield from _missing_names(split)
        if scope != 'mmseg':
            continue
        try:
            model.test_step(pseudo_collate([split.first]))
        except Exception as error:  # any, because the model may be the user's
            text = explain(error, scope)
            if isinstance(error, CERTAIN) and not re.search('meta|CPU tensor|CUDA', text):
                yield (
                    f'model.test_cfg, {split.name}_dataloader: the model cannot predict the first '
                    f'image: {text}'
                )


def _missing_names(split: Split) -> Iterator[str]:
    known = getattr(split.first.get('data_samples'), 'metainfo', None)
    # CornerNet's heads read the border of an image in place of its scale
    needed = [
        name for name in OF_DETECTORS if not (name == 'scale_factor' and 'border' in (known or ()))
    ]
    if known and (missing := [name for name in needed if name not in known]):
        yield (
            f'{split.name}_dataloader.dataset.pipeline: detectors and their metrics need '
            f'{", ".join(missing)} in meta_keys of PackDetInputs, and a Resize before it.'
        )

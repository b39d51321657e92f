"""Whole classifiers: the authors' files loaded into mmpretrain's ``ImageClassifier``.

When a state dict is loaded, each module gets only the weights with its own prefix. mmpretrain lets
the backbone convert the state dict first: :func:`split_classifier` renames its weights to
``backbone.*``, ``neck.*`` and ``head.*``. Then :func:`fit_part` checks the weights of each part.
"""

import re
from typing import Any

from mmengine.logging import print_log
from torch import nn

from mmbixt.checkpoints.describe import describe
from mmbixt.checkpoints.origin import file_of
from mmbixt.checkpoints.prefixes import replace, without
from mmbixt.checkpoints.state_dict import (
    NOTHING,
    CheckpointMismatchError,
    Conversion,
    compare,
    refuse,
    translate,
    unwrap,
)

# ``head.fc`` in timm's Swin Transformer
_LINEAR = re.compile(r'^head\.(fc\.)?(?=(weight|bias)$)')
PREFIX = "Load the neck of this file: init_cfg=dict(type='Pretrained', ..., prefix='neck.')."


def split_classifier(state_dict: dict[str, Any], prefix: str, moves: tuple[str, str]) -> bool:
    """Rename, in place, the weights of the authors' file to those of an ``ImageClassifier``.

    Those of an ``ImageClassifier`` do not change. ``prefix`` is that of all names of the
    classifier, ``moves`` a pattern and a replacement for names of weights of the neck. Returns
    whether the file is the authors'.
    """
    source = unwrap(without(prefix, state_dict))
    is_ours = any(key.startswith('backbone.') for key in source)
    if not source or (is_ours and all(prefix + key in state_dict for key in source)):
        return False

    def rename(key: str) -> str:
        for pattern, replacement in ((_LINEAR, 'head.fc.'), moves):
            if re.match(pattern, key):
                return re.sub(pattern, replacement, key)
        return f'backbone.{key}'

    if not is_ours and not any(_LINEAR.match(key) for key in source):
        raise CheckpointMismatchError(
            f'The file has no head; it seems to be {describe(source)}. Load it into the backbone: '
            "backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=...)). Nothing was loaded."
        )
    if not is_ours:
        print_log('The file is a classifier of the authors; its weights are renamed.', 'current')
        source = translate(source, rename).weights
    replace(state_dict, prefix, source)
    return not is_ours


def fit_part(part: nn.Module, state_dict: dict[str, Any], prefix: str) -> None:
    """Check, before a neck or head is loaded, that a state dict has all of its weights.

    In place: names of the file become those of ``part`` (by its ``convert_checkpoint``, if it has
    one), and other weights are removed. With an empty prefix, the file may be a whole classifier.
    """
    source = unwrap(without(prefix, state_dict))
    if hasattr(part, 'convert_checkpoint'):
        source = part.convert_checkpoint(source)
    current = part.state_dict()
    name, weights = type(part).__name__, source
    if not prefix:  # the file may hold weights of other parts
        parts = {key.partition('.')[0] for key in current}
        weights = {key: value for key, value in source.items() if key.partition('.')[0] in parts}
    differences = compare(Conversion(weights), current, r'num_batches_tracked$')
    if differences:
        advice = PREFIX if any(key.startswith('neck.') for key in source) else None
        what = None if prefix else f'seems to be {describe(source)}'
        refuse(differences, name, file_of(source), what, advice, NOTHING)
    print_log(f'{name}: {len(weights)} of {len(current)} weights loaded', 'current')
    fresh = {key: current[key] for key in differences.optional}
    replace(state_dict, prefix, {**weights, **fresh})

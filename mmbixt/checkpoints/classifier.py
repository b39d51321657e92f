"""Whole classifiers: the authors' files as mmpretrain's ``ImageClassifier``, part by part.

A module sees only its own weights when a state dict is loaded. So the backbone, which mmpretrain
asks, gives the weights of a file the names of the parts; then each part checks its own.
"""

import re
from typing import Any

from mmengine.logging import print_log
from torch import nn

from mmbixt.checkpoints.describe import describe
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, check_fit, translate, unwrap

# of timm's Swin Transformer it has a second name
_LINEAR = re.compile(r'^head\.(fc\.)?(?=(weight|bias)$)')
PREFIX = "Take the neck's part of it: init_cfg=dict(type='Pretrained', ..., prefix='neck.')."


def split_classifier(state_dict: dict[str, Any], prefix: str, moves: tuple[str, str]) -> bool:
    """Rename, in place, the weights of an official file to those of an ``ImageClassifier``.

    They stay as they are if they already are of such a classifier. ``prefix`` is that of its names,
    ``moves`` the pattern and replacement for names of neither the backbone nor the linear layer.
    Returns whether the file is the authors'.
    """
    own = [key for key in state_dict if key.startswith(prefix)]
    source = unwrap({key.removeprefix(prefix): state_dict[key] for key in own})
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
            f'The file has no head; it seems to be {describe(source)}. Give it to the backbone: '
            "backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=...)). Nothing was loaded."
        )
    if not is_ours:
        print_log('The file is a classifier of the authors; its weights take our names.', 'current')
        source = translate(source, rename).weights
    for key in own:
        del state_dict[key]
    state_dict.update((prefix + key, value) for key, value in source.items())
    return not is_ours


def fit_part(part: nn.Module, state_dict: dict[str, Any], prefix: str) -> None:
    """Before a neck or head gets its weights: take them, in place, and check that all are there.

    If the part has ``convert_checkpoint``, that renames the file's weights. Without a prefix, the
    file may be that of the whole classifier.
    """
    own = [key for key in state_dict if key.startswith(prefix)]
    source = unwrap({key.removeprefix(prefix): state_dict[key] for key in own})
    if hasattr(part, 'convert_checkpoint'):
        source = part.convert_checkpoint(source)
    current = part.state_dict()
    shapes = {key: tuple(value.shape) for key, value in current.items()}
    name, weights = type(part).__name__, source
    if not prefix:  # the rest of the file is for others
        parts = {key.partition('.')[0] for key in shapes}
        weights = {key: value for key, value in source.items() if key.partition('.')[0] in parts}
    advice = PREFIX if any(key.startswith('neck.') for key in source) else None
    seems = 'of another model' if prefix else describe(source)
    fresh = check_fit(weights, shapes, name, seems, r'num_batches_tracked$', advice)
    print_log(f'{name}: {len(weights)} of {len(shapes)} weights loaded', 'current')
    for key in own:
        del state_dict[key]
    weights = {**weights, **{key: current[key] for key in fresh}}
    state_dict.update((prefix + key, value) for key, value in weights.items())

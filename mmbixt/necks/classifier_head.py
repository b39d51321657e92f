"""mmpretrain's linear head, which loads published weights whole or not at all."""

from typing import Any

from torch import nn

from mmbixt.checkpoints.classifier import fit_part
from mmbixt.checkpoints.state_dict import CheckpointMismatchError
from mmbixt.registry import MODELS


@MODELS.register_module()
def ClassifierHead(**options: Any) -> nn.Module:  # noqa: N802 (a type in configs)
    """``mmpretrain.LinearClsHead``, which refuses weights of another number of classes.

    mmengine warns of them and trains, or tests, with a random head. (The stock head works as well
    with our backbones and necks.) A function, so that only who builds one imports mmpretrain.

    Args:
        options: of ``LinearClsHead``: ``num_classes``, ``in_channels``, ``loss``, ...
    """
    try:
        from mmpretrain.models.heads import LinearClsHead
    except (ImportError, AssertionError) as error:  # it asserts the versions of mmcv and mmengine
        raise ImportError(
            f'mmbixt.ClassifierHead needs mmpretrain, which cannot be imported ({error}).'
        ) from error
    head = LinearClsHead(**options)
    head.register_load_state_dict_pre_hook(_fit_checkpoint)
    return head


def _fit_checkpoint(head: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    weight = state_dict.get(f'{prefix}fc.weight')
    if weight is not None and len(weight) != head.num_classes:
        raise CheckpointMismatchError(
            f'The file is a classifier of {len(weight)} classes, the head has num_classes='
            f'{head.num_classes}. To train other classes, start what is before the head from the '
            "file: backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=...)), and the neck "
            'alike.'
        )
    fit_part(head, state_dict, prefix)

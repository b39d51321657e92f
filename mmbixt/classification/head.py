"""mmpretrain's linear head with checks of its weights and inputs."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import one_hot

from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.frameworks import UNUSABLE, missing_framework
from mmbixt.registry import MODELS


@MODELS.register_module()
def ClassifierHead(**options: Any) -> nn.Module:  # noqa: N802 (a type in configs)
    """``mmpretrain.LinearClsHead`` that refuses weights of another number of classes.

    With such weights mmengine only warns, and then trains or tests a random head. (The stock head
    also works with mmbixt's backbones and necks.) Binary cross-entropy accepts class indices (B),
    where no Mixup or CutMix makes scores (B,K) from them. This is a function, so that mmpretrain is
    imported only when a head is built.

    Args:
        options: arguments of ``LinearClsHead``: ``num_classes``, ``in_channels``, ``loss``, ...
    """
    try:
        from mmpretrain.models.heads import LinearClsHead
    except UNUSABLE as error:
        raise missing_framework('mmbixt.ClassifierHead', 'mmpretrain', error) from error
    head = LinearClsHead(**options)
    head.register_load_state_dict_pre_hook(_check_classes)
    head.register_forward_pre_hook(_check_vectors)
    if getattr(head.loss_module, 'use_sigmoid', False):
        head.loss_module.register_forward_pre_hook(_make_scores)
    return head


def _check_vectors(head: nn.Module, inputs: tuple[tuple[Tensor, ...]]) -> None:
    shape = tuple(inputs[0][-1].shape)
    if len(shape) != 2 or shape[1] != head.in_channels:
        raise ValueError(
            f'ClassifierHead with in_channels={head.in_channels} needs one vector for each image, '
            f'(B,{head.in_channels}), but the last output of the neck, or of the backbone without '
            f'a neck, is {shape}. docs/checkpoints.md lists the neck of each backbone.'
        )


def _make_scores(loss: nn.Module, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Logits (B,K), and scores (B,K) from class indices (B) or scores."""
    logits, target = inputs
    return logits, one_hot(target, logits.shape[1]) if target.ndim == 1 else target


def _check_classes(head: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    weight = state_dict.get(f'{prefix}fc.weight')
    if weight is not None and len(weight) != head.num_classes:
        raise CheckpointMismatchError(
            f'The file is a classifier of {len(weight)} classes, but the head has num_classes='
            f'{head.num_classes}. To train other classes, load only the backbone and the neck: '
            "backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=...)), and the same for "
            'the neck.'
        )

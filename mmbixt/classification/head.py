"""mmpretrain's linear head with a check of its weights."""

from typing import Any

from mmpretrain.models.heads import LinearClsHead
from mmpretrain.structures import DataSample
from torch import Tensor
from torch.nn.functional import one_hot

from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.registry import MODELS


@MODELS.register_module()
class ClassifierHead(LinearClsHead):
    """``mmpretrain.LinearClsHead`` that refuses weights of another number of classes.

    With such weights mmengine only warns, and then trains or tests a random head. Also, binary
    cross-entropy accepts class indices (B), where no Mixup or CutMix makes scores (B,K) from them.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_load_state_dict_pre_hook(ClassifierHead._check_classes)

    def loss(
        self, feats: tuple[Tensor, ...], data_samples: list[DataSample], **options: Any
    ) -> dict[str, Tensor]:
        """The losses of the last of the features (B,C)."""
        needs_scores = getattr(self.loss_module, 'use_sigmoid', False)
        if needs_scores and 'gt_score' not in data_samples[0]:
            scores = (one_hot(sample.gt_label[0], self.num_classes) for sample in data_samples)
            data_samples = [DataSample().set_gt_score(score) for score in scores]
        return super().loss(feats, data_samples, **options)

    def _check_classes(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        weight = state_dict.get(f'{prefix}fc.weight')
        if weight is not None and len(weight) != self.num_classes:
            raise CheckpointMismatchError(
                f'The file is a classifier of {len(weight)} classes, but the head has num_classes='
                f'{self.num_classes}. To train other classes, load only the backbone and the neck: '
                "backbone=dict(init_cfg=dict(type='Pretrained', checkpoint=...)), and the same for "
                'the neck.'
            )

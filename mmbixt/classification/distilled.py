"""Distillation: a classifier learns from labels and from the outputs of a trained one.

For logits y (B,K) of the classifier, z (B,K) of its teacher and the labels' loss L of the head::

    hard:  (1 - alpha) L + alpha CE(y, argmax z)
    soft:  (1 - alpha) L + alpha T^2 KL(softmax(z / T) || softmax(y / T))

Hard distillation with alpha = 1/2 is DeiT's; XCiT's distilled models are trained by it, with one
head and RegNetY-16GF as the teacher. For BiSA's rows with distillation the teacher, alpha and
temperature T are open.
"""

from functools import cached_property
from typing import Any

import timm
import torch
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from mmbixt.backbones.arch import check_choice
from mmbixt.registry import MODELS


class Teacher:
    """A classifier of timm that is built when it is first called.

    It is not a module, so that it is in no checkpoint, optimizer, parallel wrapper or average of
    weights. ``model`` is a name with published weights, or arguments of ``timm.create_model``.
    """

    def __init__(self, model: str | dict[str, Any]) -> None:
        named = isinstance(model, str)
        self.arguments = dict(model_name=model, pretrained=True) if named else dict(model)

    @cached_property
    def model(self) -> nn.Module:
        # a resumed run builds it at another step: neither its random weights nor the random numbers
        # of the run may depend on the step
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return timm.create_model(**self.arguments).eval().requires_grad_(False)

    @torch.compiler.disable  # building it cannot be traced
    @torch.no_grad()
    def __call__(self, images: Tensor, mean: Tensor | float, std: Tensor | float) -> Tensor:
        """Logits (B,K) of images (B,3,H,W) that were normalised with this mean and std."""
        trained = self.model.pretrained_cfg
        own_mean, own_std = (
            255 * images.new_tensor(trained[key]).view(-1, 1, 1) for key in ('mean', 'std')
        )
        images = images * (std / own_std) + (mean - own_mean) / own_std
        return self.model.to(images)(images)


@MODELS.register_module()
class DistilledClassifier(ImageClassifier):
    """``mmpretrain.ImageClassifier`` with a teacher in training.

    Parameters, checkpoints and predictions are those of the classifier without a teacher. The
    teacher sees the same images (RGB: ``data_preprocessor.to_rgb``), also those of Mixup and
    CutMix, normalised as in its own training.

    Args:
        teacher: a classifier of timm with the same classes in the same order, such as
            ``'regnety_160.deit_in1k'``, which is downloaded when training starts; or a dict of
            arguments of ``timm.create_model``, to read a file:
            ``dict(model_name='regnety_160', checkpoint_path='regnety_160-a5fe301d.pth')``.
        distillation: ``'hard'`` or ``'soft'``.
        alpha: weight of the teacher's loss; that of the labels' loss is ``1 - alpha``.
        temperature: divides the logits in soft distillation. DeiT's paper has 3; its code and
            XCiT's have 1, and divide the teacher's loss by the number of classes, too.
        classifier: arguments of ``ImageClassifier``. The head's output must be logits.

    Example:
        >>> model = dict(type='mmbixt.DistilledClassifier', teacher='regnety_160.deit_in1k')
    """

    def __init__(
        self,
        teacher: str | dict[str, Any],
        distillation: str = 'hard',
        alpha: float = 0.5,
        temperature: float = 3.0,
        **classifier: Any,
    ) -> None:
        super().__init__(**classifier)
        check_choice('distillation', distillation, ('hard', 'soft'))
        self.teacher = Teacher(teacher)
        self.distillation = distillation
        self.alpha = alpha
        self.temperature = temperature

    def loss(self, inputs: Tensor, data_samples: list[DataSample]) -> dict[str, Tensor]:
        """The losses of images (B,3,H,W), and what else the head logs."""
        feats = self.extract_feat(inputs)
        losses = self.head.loss(feats, data_samples)
        losses['loss_label'] = (1 - self.alpha) * losses.pop('loss')
        mean = getattr(self.data_preprocessor, 'mean', 0.0)
        std = getattr(self.data_preprocessor, 'std', 1.0)
        target = self.teacher(inputs, mean, std)
        losses['loss_teacher'] = self.alpha * self.distance(self.head(feats), target)
        return losses

    def distance(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits (B,K) for the teacher's (B,K)."""
        if logits.shape != target.shape:
            raise ValueError(
                f'The teacher has {target.shape[1]} classes, but the head has {logits.shape[1]}.'
            )
        if self.distillation == 'hard':
            return cross_entropy(logits, target.argmax(1))
        log_p, log_q = (log_softmax(x / self.temperature, 1) for x in (logits, target))
        return self.temperature**2 * kl_div(log_p, log_q, reduction='batchmean', log_target=True)

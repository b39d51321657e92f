"""Five steps of a model on images and labels in memory, without data sets and files."""

import torch
from mmengine.hooks import Hook
from mmengine.model import MMDistributedDataParallel, revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from random_labels import random_labels
from running import fresh_mmengine, make_loader

from mmbixt.classification import classifier_config
from mmbixt.config import read_config

SIZE = 64, 96
CLASSES = 19  # of random_labels


class Losses(Hook):
    def __init__(self):
        self.values = []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.values.append(float(outputs['loss']))


def segmentor(name, backbone=(), **options):
    """The model of a config of mmseg; its backbone with other options, without weights."""
    config = read_config(name)
    config.merge_from_dict({f'model.{key}': value for key, value in options.items()})
    model = config.model
    model.backbone.update({'init_cfg': None, **dict(backbone)})
    model.pretrained = None
    model.data_preprocessor.size = SIZE
    return model


def classifier(backbone, kind='ImageClassifier', **options):
    """The authors' classifier on a backbone."""
    init_default_scope('mmpretrain')
    model = classifier_config(backbone, CLASSES) | dict(type=kind, **options)
    model['head']['loss'] = dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original')
    return model


def samples_of(scope, count, scores=True):
    samples = [random_labels(scope, SIZE) for _ in range(count)]
    for sample in samples if scope == 'mmpretrain' and scores else ():
        sample.set_gt_score(torch.rand(CLASSES).softmax(0))
    return samples


def train(folder, model, hooks=(), epochs=5, count=4, ddp=False, scope='mmseg', **options):
    """The losses of a training with one batch an epoch, and its runner.

    ``options`` are those of the optimizer wrapper.
    """
    torch.manual_seed(0)
    images, losses = torch.randint(256, (count, 3, *SIZE), dtype=torch.uint8), Losses()
    samples = samples_of(scope, count)
    data = [dict(inputs=x, data_samples=y) for x, y in zip(images, samples, strict=True)]
    with fresh_mmengine():
        init_default_scope(scope)
        runner = Runner(
            revert_sync_batchnorm(MODELS.build(model)),
            str(folder),
            train_dataloader=make_loader(data, 'DefaultSampler', count),
            train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=epochs),
            optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.01), **options),
            custom_hooks=[*(dict(x) if isinstance(x, dict) else x for x in hooks), losses],
            default_hooks=dict(checkpoint=None),
            randomness=dict(seed=0),
        )
        if ddp:
            runner.model = MMDistributedDataParallel(runner.model)
        runner.train()
    return losses.values, runner

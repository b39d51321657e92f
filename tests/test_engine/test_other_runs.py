"""Checkpoints of other runs."""

import shutil

import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from running import fresh_mmengine, make_loader
from torch import nn

from mmbixt.engine.other_runs import KeepOtherRunsHook


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs, data_samples, mode):
        return dict(loss=self.weight.sum()) if mode == 'loss' else data_samples


class Rising(BaseMetric):
    """A score that is better than that of any validation before."""

    score = 0

    def process(self, data_batch, data_samples):
        self.results.append(0)

    def compute_metrics(self, results):
        Rising.score += 1
        return dict(score=Rising.score)


ONE_SAMPLE = [dict(inputs=0, data_samples=BaseDataElement())]


def run(folder, iterations, resume_from=None):
    checkpoint = dict(type='CheckpointHook', interval=1, by_epoch=False, max_keep_ckpts=2)
    config = dict(
        model=dict(type=Model),
        work_dir=str(folder),
        train_dataloader=make_loader(ONE_SAMPLE, 'InfiniteSampler', 1),
        val_dataloader=make_loader(ONE_SAMPLE, 'DefaultSampler', 1),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=iterations, val_interval=1),
        val_cfg=dict(),
        val_evaluator=dict(type=Rising),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        default_hooks=dict(checkpoint=dict(checkpoint, save_best='score', rule='greater')),
        resume=resume_from is not None,
        load_from=resume_from and str(resume_from),
    )
    with fresh_mmengine():
        runner = Runner.from_cfg(Config(config))
        runner.register_hook(KeepOtherRunsHook())
        runner.train()


def names(folder):
    return {path.name for path in folder.glob('*.pth')}


def test_checkpoints_of_another_run_are_kept(tmp_path):
    first, second, copy = (tmp_path / name for name in ('first', 'second', 'copy'))
    run(first, 3)
    kept = {'iter_2.pth', 'iter_3.pth', 'best_score_iter_3.pth'}
    assert names(first) == kept
    second.mkdir()
    for name in ('iter_2.pth', 'best_score_iter_3.pth'):
        (second / name).touch()
    run(second, 5, first / 'iter_3.pth')
    assert names(first) == kept
    new = {'iter_4.pth', 'iter_5.pth', 'best_score_iter_5.pth'}
    assert names(second) == new | {'iter_2.pth', 'best_score_iter_3.pth'}
    shutil.copytree(first, copy)
    run(copy, 5, copy / 'iter_3.pth')  # as in one folder
    assert names(first) == kept
    assert names(copy) == new

"""A run and a resumed run of the same iterations end with the same bits."""

import random
import shutil

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import FlexibleRunner, Runner
from running import fresh_mmengine
from torch.utils.data import Dataset

from mmbixt.checkpoints.loader import load

IMAGES = 10


class Noise(Dataset):
    """Uses all random generators; counts the images that are read in this process."""

    metainfo = dict(classes=('a',))
    read = 0

    def __len__(self):
        return IMAGES

    def get_data_info(self, index):
        return dict(width=1 + index % 3, height=2)

    def __getitem__(self, index):
        Noise.read += 1
        noise = random.random() + np.random.rand() + torch.rand(3)
        return dict(x=torch.full((3,), float(index)) + noise)


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, mode):
        if mode == 'predict':
            return [x]
        return {'loss': self.dropout(self.layer(x) + torch.randn(3)).square().mean()}


class Score(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results.append(random.random())

    def compute_metrics(self, results):
        return dict(score=sum(results))


ITERATIONS = dict(train_cfg=dict(by_epoch=False, max_iters=12), sampler='InfiniteSampler')
EPOCHS = dict(train_cfg=dict(by_epoch=True, max_epochs=4), sampler='DefaultSampler')
ALIKE = dict(batch_sampler=dict(type='mmdet.AspectRatioBatchSampler'))
VALIDATED = dict(
    val_dataloader=dict(dataset=dict(type=Noise), sampler=dict(type='DefaultSampler')),
    val_cfg=dict(),
    val_evaluator=dict(type=Score),
)
# half: the iteration of the checkpoint; read: images that the resumed run reads, in 6, 9 or 7
# batches of 4, or of 2 at the end of an epoch of data
SETTINGS = {
    'iterations': ITERATIONS,
    'iterations, epochs of data': ITERATIONS | dict(sampler='DefaultSampler', read=20),
    'epochs': EPOCHS | dict(half=3, read=30),
    'epochs with a rate each, before it changes': EPOCHS
    | dict(half=3, read=30, schedule=dict(type='StepLR', step_size=1)),
    'from the middle of an epoch of alike images': EPOCHS | dict(half=5, loader=ALIKE, read=22),
    'from the middle of a short epoch': dict(
        train_cfg=dict(by_epoch=True, max_epochs=6),
        sampler='DefaultSampler',
        loader=dict(num_batch_per_epoch=2),
        half=5,
        read=28,
    ),
    'workers': ITERATIONS | dict(loader=dict(num_workers=2), read=0),
    'accumulation': ITERATIONS | dict(wrapper=dict(accumulative_counts=3)),
    'FlexibleRunner, saved again by a validation': VALIDATED
    | dict(
        train_cfg=dict(by_epoch=False, max_iters=12, val_interval=6),
        sampler='InfiniteSampler',
        runner=FlexibleRunner,
        read=24 + IMAGES,
    ),
}


WARM_UP = dict(type='LinearLR', start_factor=0.1, end=9, by_epoch=False)


def train(
    folder,
    train_cfg,
    sampler,
    half=6,
    wrapper=None,
    loader=None,
    runner=Runner,
    schedule=WARM_UP,
    **more,
):
    torch.manual_seed(0)
    data = dict(batch_size=4, num_workers=0, dataset=dict(type=Noise), sampler=dict(type=sampler))
    checkpoint = dict(type='CheckpointHook', interval=half, by_epoch=False, save_last=True)
    if 'val_cfg' in more:
        checkpoint |= dict(save_best='score', rule='greater')
    config = dict(
        model=dict(type=Model),
        work_dir=str(folder),
        train_dataloader=data | dict(collate_fn=dict(type='default_collate')) | (loader or {}),
        train_cfg=train_cfg,
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)) | (wrapper or {}),
        param_scheduler=schedule,
        default_hooks=dict(
            exact_resume=dict(type='mmbixt.ExactResumeHook'),
            checkpoint=checkpoint,
            logger=dict(type='LoggerHook', interval=1),
        ),
        # mmengine cannot resume it with a FlexibleRunner
        custom_hooks=[dict(type='EMAHook')] if runner is Runner else [],
        env_cfg=dict(),
        **more,
    )
    with fresh_mmengine():
        run = runner.from_cfg(Config(config))
        Noise.read = 0
        run.train()
        run.train_loop.dataloader_iterator = None  # else the garbage collector waits for workers


def state(folder, name):
    """Schedules, logged losses and all tensors of a checkpoint."""
    saved = load(str(folder / name))
    logged = saved['message_hub']['log_scalars']['train/loss'].data[0].tolist()
    tensors = [saved.get(key) for key in ('state_dict', 'ema_state_dict', 'optimizer')]
    return saved['param_schedulers'], logged, tensors


@pytest.mark.parametrize('name', SETTINGS)
def test_resumed_run_equals_uninterrupted_run(tmp_path, name):
    settings = dict(SETTINGS[name])
    read = settings.pop('read', 24)
    middle, end = f'iter_{settings.get("half", 6)}.pth', 'iter_12.pth'
    train(tmp_path / 'whole', **settings)
    (tmp_path / 'halves').mkdir()
    shutil.copy(tmp_path / 'whole' / middle, tmp_path / 'halves')
    resume = dict(resume=True, load_from=str(tmp_path / 'halves' / middle))
    train(tmp_path / 'halves', **settings, **resume)
    assert Noise.read == read
    *first, one = state(tmp_path / 'whole', end)
    *second, other = state(tmp_path / 'halves', end)
    assert first == second
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_another_batch_size_is_warned_of_and_keeps_the_epochs(tmp_path):
    """The checkpoint is of the second of four epochs; the batch size changes from 4 to 8."""
    settings = EPOCHS | dict(half=6)
    train(tmp_path / 'first', **settings)
    resume = dict(resume=True, load_from=str(tmp_path / 'first/iter_6.pth'))
    train(tmp_path / 'second', **settings, **resume, loader=dict(batch_size=8))
    (log,) = (tmp_path / 'second').glob('*/*.log')
    text = "of a run with {'processes': 1, 'batch_size': 4, 'images': 10}, but this run has"
    assert text in log.read_text()
    assert Noise.read == 3 * IMAGES  # one whole epoch was recorded in the checkpoint

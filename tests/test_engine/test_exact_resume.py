"""A run and a resumed run of the same iterations end with the same bits."""

import random
import re
import shutil

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch.utils.data import Dataset

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.loader import load

IMAGES = 10
COLLATE = dict(collate_fn=dict(type='default_collate'))


class Noise(Dataset):
    """Uses all random generators; counts the images that are read in this process."""

    metainfo = dict(classes=('a',))
    read = 0

    def __len__(self):
        return IMAGES

    def __getitem__(self, index):
        Noise.read += 1
        noise = random.random() + np.random.rand() + torch.rand(3)
        return dict(x=torch.full((3,), float(index)) + noise)


class ReadsBatches(Noise):
    """Two images of each batch."""

    def __getitems__(self, indices):
        return [self[i] for i in indices[:2]]


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, mode):
        y = self.layer(x)
        Model.computed_in = y.dtype
        return {'loss': self.dropout(y + torch.randn(3)).square().mean()}


ITERATIONS = dict(
    train_cfg=dict(by_epoch=False, max_iters=12), sampler=dict(type='InfiniteSampler')
)
SETTINGS = {
    'iterations': ITERATIONS,
    'iterations, epochs of data': ITERATIONS | dict(sampler=dict(type='DefaultSampler')),
    'epochs': dict(
        train_cfg=dict(by_epoch=True, max_epochs=4), sampler=dict(type='DefaultSampler'), half=3
    ),
    'from the middle of a short epoch': dict(
        train_cfg=dict(by_epoch=True, max_epochs=6),
        sampler=dict(type='DefaultSampler'),
        num_batch_per_epoch=2,
        half=5,
    ),
    'workers': ITERATIONS | dict(num_workers=2),
    'batches that the data set reads': ITERATIONS | dict(dataset=ReadsBatches()),
    'accumulation': ITERATIONS | dict(accumulative_counts=3),
    'bfloat16': ITERATIONS | dict(wrapper='mmbixt.BFloat16OptimWrapper'),
}


# images read by the resumed run: 6, 9 or 7 batches of 4, or of 2 at the end of an epoch of data
READ = {'iterations, epochs of data': 20, 'epochs': 30, 'workers': 0}
READ |= {'from the middle of a short epoch': 28, 'batches that the data set reads': 12}
LOADER = ('num_workers', 'num_batch_per_epoch', 'batch_size')


def train(
    folder,
    train_cfg,
    sampler,
    accumulative_counts=1,
    half=6,
    wrapper='OptimWrapper',
    dataset=None,
    **options,
):
    torch.manual_seed(0)
    dataset = dataset or Noise()
    loader = dict(batch_size=4, num_workers=0, dataset=dict(type=lambda: dataset), sampler=sampler)
    loader |= {key: options.pop(key) for key in LOADER if key in options}
    runner = Runner(
        Model(),
        str(folder),
        loader | COLLATE,
        train_cfg=train_cfg,
        optim_wrapper=dict(
            type=wrapper,
            optimizer=dict(type='AdamW', lr=0.1),
            accumulative_counts=accumulative_counts,
        ),
        param_scheduler=dict(type='LinearLR', start_factor=0.1, end=9, by_epoch=False),
        default_hooks=dict(
            exact_resume=dict(type='mmbixt.ExactResumeHook'),
            checkpoint=dict(type='CheckpointHook', interval=half, by_epoch=False, save_last=True),
            logger=dict(type='LoggerHook', interval=1),
        ),
        custom_hooks=[dict(type='EMAHook')],
        experiment_name=f'{folder.name}_{len(list(folder.glob("*")))}',
        **options,
    )
    runner.train()
    used = runner.train_dataloader.dataset
    assert getattr(used, '_dataset', used) is dataset  # not a copy: it may be large
    runner.train_loop.dataloader_iterator = None  # else the garbage collector waits for workers


def state(folder, name):
    """Schedules, logged losses and all tensors of a checkpoint."""
    saved = load(str(folder / name))
    logged = saved['message_hub']['log_scalars']['train/loss'].data[0].tolist()
    tensors = [saved[key] for key in ('state_dict', 'ema_state_dict', 'optimizer')]
    return saved['param_schedulers'], logged, tensors


@pytest.mark.parametrize('settings', SETTINGS)
def test_resumed_run_equals_uninterrupted_run(tmp_path, monkeypatch, settings):
    # mmengine sleeps for two seconds after each epoch of the data
    monkeypatch.setattr('mmengine.runner.loops.time.sleep', lambda _: None)
    name, settings = settings, SETTINGS[settings]
    middle, end = f'iter_{settings.get("half", 6)}.pth', 'iter_12.pth'
    train(tmp_path / 'whole', **settings)
    (tmp_path / 'halves').mkdir()
    shutil.copy(tmp_path / 'whole' / middle, tmp_path / 'halves')
    Noise.read = 0
    resume = dict(resume=True, load_from=str(tmp_path / 'halves' / middle))
    train(tmp_path / 'halves', **settings, **resume)
    assert Noise.read == READ.get(name, 24)
    assert Model.computed_in == (torch.bfloat16 if name == 'bfloat16' else torch.float32)
    if name == 'iterations':  # what mmengine says next sounds like reading
        (log,) = (tmp_path / 'halves').glob('*/*.log')
        assert re.search('(?s)batches are skipped without.*Advance data', log.read_text())
    *first, one = state(tmp_path / 'whole', end)
    *second, other = state(tmp_path / 'halves', end)
    assert first == second
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_another_batch_size_is_warned_of_and_keeps_the_epochs(tmp_path):
    """The checkpoint is of the second of four epochs; the batch size changes from 4 to 8."""
    settings = SETTINGS['epochs']
    train(tmp_path / 'first', **settings)
    resume = dict(resume=True, load_from=str(tmp_path / 'first/iter_6.pth'), batch_size=8)
    Noise.read = 0
    train(tmp_path / 'second', **settings, **resume)
    (log,) = (tmp_path / 'second').glob('*/*.log')
    assert 'of a run with processes 1, batch size 4, images 10; this run has' in log.read_text()
    assert Noise.read == 3 * IMAGES  # one whole epoch was recorded in the checkpoint


def test_changed_settings_that_are_restored_are_warned_of(tmp_path):
    old, new = (Config(dict(param_scheduler=[dict(type='LinearLR', end=i)])) for i in (9, 90))
    train(tmp_path / 'first', cfg=old, **ITERATIONS)
    resume = dict(resume=True, load_from=str(tmp_path / 'first/iter_6.pth'))
    for folder, cfg in (('same', old), ('changed', new)):
        train(tmp_path / folder, cfg=cfg, **ITERATIONS, **resume)
        (log,) = (tmp_path / folder).glob('*/*.log')
        assert ('param_scheduler: changed since' in log.read_text()) is (folder == 'changed')

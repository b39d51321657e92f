"""N iterations in one run, and in two, end with the same bits."""

import random
import shutil

import numpy as np
import pytest
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch.utils.data import Dataset

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.loader import load
from mmbixt.ops import dispatch

IMAGES = 10
COLLATE = dict(collate_fn=dict(type='default_collate'))


class Noise(Dataset):
    """Uses all generators of random numbers; counts what is read in this process."""

    metainfo = dict(classes=('a',))
    read = 0

    def __len__(self):
        return IMAGES

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
    'from the middle of an epoch, of a few batches each': dict(
        train_cfg=dict(by_epoch=True, max_epochs=6),
        sampler=dict(type='DefaultSampler'),
        num_batch_per_epoch=2,
        half=5,
    ),
    'workers': ITERATIONS | dict(num_workers=2),
    'accumulation': ITERATIONS | dict(accumulative_counts=3),
    'bfloat16': ITERATIONS | dict(wrapper='mmbixt.BFloat16OptimWrapper'),
}


# images that are read for the rest: six batches and nine, of which each third is smaller; seven
READ = {'iterations, epochs of data': 20, 'epochs': 30, 'workers': 0}
READ['from the middle of an epoch, of a few batches each'] = 28
LOADER = ('num_workers', 'num_batch_per_epoch', 'batch_size')


def train(
    folder, train_cfg, sampler, accumulative_counts=1, half=6, wrapper='OptimWrapper', **options
):
    torch.manual_seed(0)
    dataset = Noise()
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
    assert getattr(used, '_dataset', used) is dataset  # which may be large, and is not copied
    runner.train_loop.dataloader_iterator = None  # else the garbage collector waits for workers


def state(folder, name):
    """All that a checkpoint has of the training, and the losses that were logged."""
    saved = load(str(folder / name))
    logged = saved['message_hub']['log_scalars']['train/loss'].data[0].tolist()
    tensors = [saved[key] for key in ('state_dict', 'ema_state_dict', 'optimizer')]
    return saved['param_schedulers'], logged, tensors


@pytest.mark.parametrize('settings', SETTINGS)
def test_two_halves_are_the_whole(tmp_path, monkeypatch, settings):
    # else mmengine waits for two seconds after each epoch of the data
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
    *first, one = state(tmp_path / 'whole', end)
    *second, other = state(tmp_path / 'halves', end)
    assert first == second
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_another_batch_is_said_and_keeps_the_epochs(tmp_path):
    """From the second of four epochs, in batches of 4; here in batches of 8."""
    settings = SETTINGS['epochs']
    train(tmp_path / 'first', **settings)
    resume = dict(resume=True, load_from=str(tmp_path / 'first/iter_6.pth'), batch_size=8)
    Noise.read = 0
    train(tmp_path / 'second', **settings, **resume)
    (log,) = (tmp_path / 'second').glob('*/*.log')
    assert 'a run with 1 processes x 4 images' in log.read_text()
    assert Noise.read == 3 * IMAGES  # the checkpoint says one whole epoch, before its second ended


def test_products_are_made_as_before(tmp_path, monkeypatch):
    """By the library that the first run took, even where the other one was found faster since."""
    monkeypatch.setattr(dispatch, 'ONEDNN_IS_FASTER', True)
    train(tmp_path / 'first', **ITERATIONS)
    monkeypatch.setattr(dispatch, 'ONEDNN_IS_FASTER', False)
    train(tmp_path / 'second', **ITERATIONS)
    assert not dispatch.ONEDNN_IS_FASTER
    resume = dict(resume=True, load_from=str(tmp_path / 'first/iter_6.pth'))
    train(tmp_path / 'third', **ITERATIONS, **resume)
    assert dispatch.ONEDNN_IS_FASTER

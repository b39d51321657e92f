"""Through mmengine: once anything of mmbixt is used, its stock functions read files safely."""

from unittest.mock import Mock

import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.model import BaseModel
from mmengine.runner import CheckpointLoader, Runner, checkpoint, load_checkpoint
from torch.utils.data import DataLoader

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.loader import load, load_from_timm, register_checkpoint_readers
from mmbixt.checkpoints.sources import SCHEMES, find


def test_only_files_and_our_names_are_read_by_us():
    readers = {
        'a/file.pth': load,
        **dict.fromkeys(SCHEMES, load),  # xcit:// and so on
        'timm://name': load_from_timm,
        find('xcit://ade-upernet-tiny12-p8').url: load,  # as metafiles name them
        'https://host/file.pth': checkpoint.load_from_http,
        'https://download.openmmlab.com/mmdetection/x.pth': checkpoint.load_from_http,
    }
    for name, reader in readers.items():
        assert CheckpointLoader._get_checkpoint_loader(name) is reader


@pytest.mark.parametrize('scheme', ['', 'xcit://'])
def test_readers_of_others_are_left_alone(monkeypatch, scheme):
    monkeypatch.setitem(CheckpointLoader._schemes, scheme, checkpoint.load_from_http)
    log = Mock()
    monkeypatch.setattr('mmbixt.checkpoints.loader.print_log', log)
    register_checkpoint_readers()
    assert CheckpointLoader._schemes[scheme] is checkpoint.load_from_http
    assert 'load_from_http, not by mmbixt' in log.call_args.args[0]


def test_home_directory(save, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    save({'state_dict': torch.nn.Linear(2, 2).state_dict()})
    load_checkpoint(torch.nn.Linear(2, 2), '~/saved.pth', strict=True)


class Model(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, mode):
        return {'loss': self.layer(x).square().mean()}


def runner(folder, iterations, **options):
    torch.manual_seed(0)
    return Runner(
        Model(),
        str(folder),
        DataLoader([dict(x=torch.full((2,), float(i))) for i in range(8)], batch_size=2),
        train_cfg=dict(by_epoch=False, max_iters=iterations),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.1)),
        param_scheduler=[
            dict(type='LinearLR', start_factor=0.1, begin=0, end=2, by_epoch=False),
            dict(type='MultiStepLR', milestones=[3], by_epoch=False),
        ],
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=2, by_epoch=False)),
        experiment_name=f'{folder.name}_{iterations}_{len(options)}',
        randomness=dict(seed=0),
        **options,
    )


def test_stock_runner_resumes_as_if_it_had_not_stopped(tmp_path):
    whole = runner(tmp_path / 'whole', 6)
    whole.train()
    runner(tmp_path / 'parts', 4).train()
    resumed = runner(tmp_path / 'parts', 6, resume=True)
    resumed.train()
    assert resumed.iter == 6
    for first, second in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(first, second)
    saved = load(str(tmp_path / 'parts/iter_6.pth'))
    loss = saved['message_hub']['log_scalars']['train/loss']
    assert (type(loss), len(loss.data[0])) == (HistoryBuffer, 6)
    assert loss.mean() > 0  # by its own name

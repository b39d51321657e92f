"""Two processes on a CPU, as a user's two GPUs, learn what one process learns."""

import pytest
import torch
from distributed_training import BACKBONES, fit, make_backbone, train
from torch.multiprocessing import spawn


@pytest.mark.parametrize('wrap', ['DDP', 'FSDP of blocks', 'FSDP of linear layers'])
def test_two_processes_learn_what_one_learns(tmp_path, wrap):
    spawn(train, (tmp_path, wrap, 2), nprocs=2)
    for family in BACKBONES:
        check(family, *(torch.load(tmp_path / f'{family}-{rank}.pth') for rank in range(2)))


def check(family, first, second):
    alone, start = make_backbone(family), dict(make_backbone(family).named_parameters())
    fit(alone)
    for name, expected in alone.named_parameters():
        assert torch.equal(first[name], second[name])
        step = (expected - start[name]).abs().max()
        assert step > 0, name
        # of float32: what is hardly moved is compared with its own size
        scale = torch.maximum(step, 1e-2 * expected.abs().max())
        assert (first[name] - expected).abs().max() <= 1e-3 * scale, name

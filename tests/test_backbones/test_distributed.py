"""Two processes on a CPU, as a user's two GPUs: every parameter takes part in every step."""

import pytest
import torch
from distributed_training import make_backbone, train
from torch.multiprocessing import spawn


@pytest.mark.parametrize('wrap', ['DDP', 'FSDP'])
def test_two_processes_learn_the_same(tmp_path, wrap):
    spawn(train, (tmp_path, wrap, 2), nprocs=2)
    first, second = (torch.load(tmp_path / f'{rank}.pth') for rank in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, make_backbone().latents)

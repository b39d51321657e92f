"""Two processes on a CPU, as a user's two GPUs: every parameter takes part in every step."""

import pytest
import torch
from distributed_training import BACKBONES, make_backbone, train
from torch.multiprocessing import spawn


@pytest.mark.parametrize('wrap', ['DDP', 'FSDP'])
@pytest.mark.parametrize('family', BACKBONES)
def test_two_processes_learn_the_same(tmp_path, family, wrap):
    spawn(train, (tmp_path, wrap, family, 2), nprocs=2)
    first, second = (torch.load(tmp_path / f'{rank}.pth') for rank in range(2))
    for name, start in make_backbone(family).named_parameters():
        assert torch.equal(first[name], second[name])
        # the bias of a convolution in front of a batch norm has no effect
        assert not torch.equal(first[name], start) or name.endswith('.bias'), name

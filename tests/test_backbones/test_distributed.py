"""FSDP in two processes on a CPU, as on two GPUs, gives the weights of one process."""

import pytest
import torch
from torch.multiprocessing import start_processes
from two_processes import UNITS, fit, make_backbone, train
from variants import FAMILIES


@pytest.mark.zoo
@pytest.mark.parametrize('family', FAMILIES)
def test_two_processes_give_the_weights_of_one(family, tmp_path):
    start_processes(train, (tmp_path, family), nprocs=2, start_method='spawn')
    alone, start = make_backbone(family), dict(make_backbone(family).named_parameters())
    fit(alone)
    for units in UNITS:
        first, second = (torch.load(tmp_path / f'{units}-{rank}.pth') for rank in range(2))
        for name, expected in alone.named_parameters():
            assert torch.equal(first[name], second[name])
            step = (expected - start[name]).abs().max()
            assert step > 0, name
            # float32: a weight that moves little is compared with its own size
            scale = torch.maximum(step, 1e-2 * expected.abs().max())
            assert (first[name] - expected).abs().max() <= 1e-3 * scale, (units, name)

"""Training in two processes on a CPU, as on two GPUs, gives the weights of one process."""

import pytest
import torch
from distributed_training import WRAPPERS, fit, make_backbone, train
from helpers import only_in_zoo
from torch.multiprocessing import spawn
from variants import FAMILIES

pytestmark = only_in_zoo


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """The folder with the weights of two processes, for all families in all wrappers."""
    folder = tmp_path_factory.mktemp('trained')
    spawn(train, (folder, 2), nprocs=2)
    return folder


@pytest.mark.parametrize(('number', 'family'), enumerate(FAMILIES))
def test_two_processes_give_the_weights_of_one(trained, number, family):
    alone, start = make_backbone(family), dict(make_backbone(family).named_parameters())
    fit(alone)
    for wrap in WRAPPERS:
        first, second = (torch.load(trained / f'{number}-{wrap}-{rank}.pth') for rank in range(2))
        for name, expected in alone.named_parameters():
            assert torch.equal(first[name], second[name])
            step = (expected - start[name]).abs().max()
            assert step > 0, name
            # float32: a weight that moves little is compared with its own size
            scale = torch.maximum(step, 1e-2 * expected.abs().max())
            assert (first[name] - expected).abs().max() <= 1e-3 * scale, (wrap, name)

"""The code of the processes of test_distributed.py, which import it by name."""

from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from variants import FAMILIES, build

WRAPPERS = ('DDP', 'FSDP of blocks', 'FSDP of linear layers')
STEPS, IMAGES = 2, 4  # DDP finds parameters without gradient in the second step
FREE = {'bisa': dict(lam='learned')}  # options with additional parameters
BLOCKS = ('Layer', 'Block', 'SwinBlock')


def make_backbone(family):
    """Without batch statistics and stochastic depth, which depend on the batch of a process."""
    return build(FAMILIES[family], norm_eval=True, **FREE.get(family, {})).train()


def units(backbone, wrap):
    """The modules that are FSDP units: blocks, or linear layers and the module that has G."""
    if wrap == 'FSDP of blocks':
        return [m for m in backbone.modules() if type(m).__name__ in BLOCKS]
    inside = [m for m in backbone.modules() if getattr(m, 'G', None) is not None]
    return [m for m in backbone.modules() if type(m) is nn.Linear] + inside


def fit(network, rank=0, processes=1):
    """A few steps on this process's share of the images."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    torch.manual_seed(1)
    for _ in range(STEPS):
        images = torch.randn(IMAGES, 3, 48, 32).chunk(processes)[rank]
        optimizer.zero_grad()
        # not the square: after a norm its mean is constant
        sum((m + 0.3).sin().mean() for m in network(images)).backward()
        optimizer.step()


def train(rank, folder, processes):
    """Train all families in all wrappers, one after another, and save their weights."""
    meeting = f'file://{folder}/rendezvous'
    dist.init_process_group('gloo', meeting, rank=rank, world_size=processes)
    torch.set_num_threads(1)
    for family, wrap in product(FAMILIES, WRAPPERS):
        backbone = make_backbone(family)
        if wrap == 'DDP':
            fit(DistributedDataParallel(backbone), rank, processes)
            weights = dict(backbone.named_parameters())
        else:
            for unit in units(backbone, wrap):
                fully_shard(unit)
            fully_shard(backbone)
            fit(backbone, rank, processes)
            weights = {name: p.full_tensor() for name, p in backbone.named_parameters()}
        weights = {name: p.detach() for name, p in weights.items()}
        torch.save(weights, Path(folder, f'{list(FAMILIES).index(family)}-{wrap}-{rank}.pth'))
    dist.destroy_process_group()

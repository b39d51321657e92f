"""Training of small backbones in two processes; a module of its own, which the processes import."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from variants import FAMILIES, build

WRAPPERS = ('DDP', 'FSDP of blocks', 'FSDP of linear layers')
BLOCKS = ('Layer', 'Block', 'SwinBlock')
STEPS, IMAGES = 2, 4  # DDP finds parameters without gradient in the second step


def make_backbone(family):
    """Without batch statistics and stochastic depth, which depend on the batch of a process."""
    free = dict(lam='learned') if family == 'bisa' else {}
    return build(FAMILIES[family], norm_eval=True, **free).train()


def shard(backbone, wrap):
    """The FSDP units are blocks, or linear layers and the module that has G."""
    for module in reversed(list(backbone.modules())[1:]):  # inner ones first
        is_linear = type(module) is nn.Linear or getattr(module, 'G', None) is not None
        if type(module).__name__ in BLOCKS if wrap == 'FSDP of blocks' else is_linear:
            fully_shard(module)
    fully_shard(backbone)


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


def train(rank, folder, family):
    """In all wrappers; writes the weights."""
    store = dist.FileStore(f'{folder}/store', 2)
    dist.init_process_group('gloo', store=store, rank=rank, world_size=2)
    for wrap in WRAPPERS:
        backbone = make_backbone(family)
        if wrap == 'DDP':
            fit(DistributedDataParallel(backbone), rank, 2)
        else:
            shard(backbone, wrap)
            fit(backbone, rank, 2)
        weights = {
            name: (p if wrap == 'DDP' else p.full_tensor()).detach()
            for name, p in backbone.named_parameters()
        }
        torch.save(weights, folder / f'{wrap}-{rank}.pth')
    dist.destroy_process_group()

"""Training of small backbones with FSDP; a module of its own, which the processes import."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from variants import FAMILIES, build

UNITS = ('blocks', 'linear layers')
STEPS, IMAGES = 2, 4


def make_backbone(family):
    """Without batch statistics and stochastic depth, which depend on the batch of a process."""
    free = dict(lam='learned') if family == 'bisa' else {}
    return build(FAMILIES[family], norm_eval=True, **free).train()


def shard(backbone, units):
    """Linear layers are those and the module that has G."""
    chosen = [layer.module for layer in backbone.layer_list()]
    if units == 'linear layers':
        chosen = [m for m in backbone.modules() if type(m) is nn.Linear or hasattr(m, 'G')]
    for module in (*reversed(chosen), backbone):  # inner ones first
        fully_shard(module)


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
    """With all kinds of units; writes the weights."""
    store = dist.FileStore(f'{folder}/store', 2)
    dist.init_process_group('gloo', store=store, rank=rank, world_size=2)
    for units in UNITS:
        backbone = make_backbone(family)
        shard(backbone, units)
        fit(backbone, rank, 2)
        weights = {name: p.full_tensor().detach() for name, p in backbone.named_parameters()}
        torch.save(weights, folder / f'{units}-{rank}.pth')
    dist.destroy_process_group()

"""What the processes of the distributed tests run; a module that they can import by its name."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from mmbixt.backbones import BiXT


def make_backbone():
    torch.manual_seed(0)
    return BiXT(arch=dict(embed_dims=32, num_heads=2, depth=4), token_refiner='lpi')


def train(rank, folder, wrap, processes):
    meeting = f'file://{folder}/rendezvous'
    dist.init_process_group('gloo', meeting, rank=rank, world_size=processes)
    torch.set_num_threads(1)
    backbone = make_backbone()
    if wrap == 'DDP':
        backbone = DistributedDataParallel(backbone)
    else:
        for layer in backbone.blocks:
            fully_shard(layer)
        fully_shard(backbone)
    optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1)
    torch.manual_seed(rank)  # each process has images of its own
    for _ in range(2):  # DDP finds parameters without gradient in the second step
        optimizer.zero_grad()
        sum(m.square().mean() for m in backbone(torch.randn(2, 3, 48, 32))).backward()
        optimizer.step()
    weight = backbone.module.latents if wrap == 'DDP' else backbone.latents.full_tensor()
    torch.save(weight.detach(), Path(folder, f'{rank}.pth'))
    dist.destroy_process_group()

"""What the processes of the distributed tests run; a module that they can import by its name."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT

BACKBONES = {
    'BiXT': lambda: BiXT(arch=dict(embed_dims=32, num_heads=2, depth=4), token_refiner='lpi'),
    'XCiT': lambda: XCiT(arch=dict(embed_dims=32, num_heads=2, depth=4)),
    'BiFormer': lambda: BiFormer(
        arch=dict(embed_dims=(16, 32), depths=(2, 1), topks=(2, -2)), num_regions=2
    ),
    'BiSASwin': lambda: BiSASwin(
        arch=dict(embed_dims=16, depths=(2, 2), num_heads=(2, 4)), lam='learned'
    ),
}


def make_backbone(family):
    torch.manual_seed(0)
    return BACKBONES[family]()


def layers_of(backbone):
    if isinstance(backbone, BiXT | XCiT):
        return list(backbone.blocks)
    if isinstance(backbone, BiSASwin):
        return [block for stage in backbone.stages for block in stage.blocks]
    return [block for stage in backbone.stages for block in stage]


def train(rank, folder, wrap, family, processes):
    meeting = f'file://{folder}/rendezvous'
    dist.init_process_group('gloo', meeting, rank=rank, world_size=processes)
    torch.set_num_threads(1)
    backbone = make_backbone(family)
    if wrap == 'DDP':
        backbone = DistributedDataParallel(backbone)
    else:
        for layer in layers_of(backbone):
            fully_shard(layer)
        fully_shard(backbone)
    optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1)
    torch.manual_seed(rank)  # each process has images of its own
    for _ in range(2):  # DDP finds parameters without gradient in the second step
        optimizer.zero_grad()
        sum(m.square().mean() for m in backbone(torch.randn(2, 3, 48, 32))).backward()
        optimizer.step()
    if wrap == 'DDP':
        weights = dict(backbone.module.named_parameters())
    else:
        weights = {name: p.full_tensor() for name, p in backbone.named_parameters()}
    torch.save({name: p.detach() for name, p in weights.items()}, Path(folder, f'{rank}.pth'))
    dist.destroy_process_group()

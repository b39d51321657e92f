"""Small backbones of every family with every kind of option, and with few blocks: tests go through
all modules of all of them."""

import copy

import torch

from mmbixt import backbones

BIXT = dict(embed_dims=16, num_heads=2, depth=2)
BIFORMER = dict(embed_dims=(16, 32, 32), depths=(1, 1, 1), topks=(1, 4, -1))
BISA = dict(type='mmbixt.BiSASwin', drop_path_rate=0.0)

VARIANTS = {
    'bixt': dict(type='mmbixt.BiXT', arch=BIXT),
    'bixt /8': dict(type='mmbixt.BiXT', arch=BIXT, patch_stride=8),
    'bixt /4, layer scale': dict(
        type='mmbixt.BiXT',
        arch=BIXT | dict(depth=3, layer_scale=0.1),
        patch_stride=4,
        out_indices=(0, 2),
    ),
    'bixt conv, LPI': dict(
        type='mmbixt.BiXT', arch=BIXT, patch_embed='conv', token_refiner='lpi', num_latents=8
    ),
    'bixt, only early layers': dict(
        type='mmbixt.BiXT', arch=BIXT | dict(depth=4), out_indices=(0, 1)
    ),
    'xcit': dict(type='mmbixt.XCiT', arch=BIXT),
    'xcit /8, layer scale': dict(
        type='mmbixt.XCiT',
        arch=dict(embed_dims=16, num_heads=4, depth=3, layer_scale=0.1),
        patch_size=8,
        out_indices=(0, 2),
    ),
    'biformer': dict(
        type='mmbixt.BiFormer',
        arch=dict(embed_dims=(16, 32, 64), depths=(1, 2, 1), topks=(1, 4, -2)),
        num_regions=3,
    ),
    'biformer, padding of the authors, early stages': dict(
        type='mmbixt.BiFormer',
        arch=dict(embed_dims=(16, 32, 64, 64), depths=(2, 1, 1, 1), topks=(1, 4, 2, -2)),
        num_regions=(4, 2, 2, 2),
        padding='legacy',
        out_indices=(0, 2),
    ),
    'biformer, regions by the size': dict(
        type='mmbixt.BiFormer', arch=BIFORMER, num_regions='auto'
    ),
    'biformer stl': dict(type='mmbixt.BiFormer', arch=BIFORMER | dict(code='stl'), num_regions=2),
    'bisa': dict(BISA, arch=dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2))),
    'bisa, learned, early stages': dict(
        BISA,
        arch=dict(embed_dims=16, depths=(1, 2, 2), num_heads=(2, 2, 4), window_size=4),
        bisa_stages=(0, 1),
        lam='learned',
        out_indices=(0, 1),
    ),
    'bisa, additive, layer norm': dict(
        BISA,
        arch=dict(embed_dims=16, depths=(2, 1), num_heads=(1, 2), window_size=4),
        lam='learned',
        branch_norm='layer',
        projection='additive',
    ),
    'swin': dict(
        BISA,
        arch=dict(embed_dims=16, depths=(1, 2, 1), num_heads=(1, 2, 4)),
        bisa_stages=(),
        out_indices=(1, 2),
    ),
}
# one of each family, for what is slow and the same in all variants
FAMILIES = {
    name: VARIANTS[name] for name in ('bixt conv, LPI', 'xcit /8, layer scale', 'biformer', 'bisa')
}
# of full size
NETWORKS = {
    'BiXT-Ti': dict(type='mmbixt.BiXT', arch='tiny'),
    'XCiT-T12': dict(type='mmbixt.XCiT', arch='tiny12'),
    'BiFormer-T': dict(type='mmbixt.BiFormer', arch='tiny'),
    'BiSA-Swin-T': dict(type='mmbixt.BiSASwin', arch='tiny'),
}


def build(config, seed=1, **options):
    """Without stochastic depth unless it is given, so that two networks can be compared."""
    torch.manual_seed(seed)
    options = copy.deepcopy({'drop_path_rate': 0.0, **config, **options})
    return getattr(backbones, options.pop('type').removeprefix('mmbixt.'))(**options)

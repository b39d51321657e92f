"""Without mmengine, the networks are plain modules of torch, and there are metrics."""

import pytest
import torch
from helpers import python
from test_checkpoints.layouts import random_state

PROGRAM = """
import sys
from mmbixt import backbones
unused = {'mmengine', 'timm', 'pooch', 'safetensors', 'torch._dynamo', 'sympy'}
assert not unused & set(sys.modules)  # the last two take seconds
for name in ('mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain', 'timm'):
    sys.modules[name] = None
import torch
from mmbixt.checkpoints.loader import load

try:
    import mmbixt.registry
except ImportError as error:
    print(error)
(file,) = sys.argv[1:]
network = backbones.XCiT('nano12')
network.load_state_dict(load(file))
assert torch.equal(network.blocks[3].gamma1, load(file)['state_dict']['blocks.3.gamma1'])
again = backbones.XCiT('nano12', init_cfg=dict(type='Pretrained', checkpoint=file))
again.init_weights()
assert torch.equal(again.blocks[3].gamma1, network.blocks[3].gamma1)
torch.set_grad_enabled(False)  # with gradients BiSA-Swin imports torch._dynamo
for name in backbones.__all__:
    network = getattr(backbones, name)()
    assert len(network(torch.rand(1, 3, 64, 64))) == len(network.out_channels)
from mmbixt.evaluation import BoundaryScores
BoundaryScores(2)
assert not any(name.partition('.')[0] in ('mmengine', 'mmcv') and sys.modules[name]
               for name in sys.modules)
"""


@pytest.mark.zoo
def test_backbones_load_files_and_run_and_metrics_are_built(tmp_path):
    torch.save({'model': random_state('xcit_nano_12_p16')}, tmp_path / 'file.pth')
    said = python('-c', PROGRAM, tmp_path / 'file.pth')
    assert 'needs mmengine, which cannot be imported' in said

"""The tool that compares the first attention of two models."""

import sys
from pathlib import Path

import cv2
import pytest
import torch
from helpers import CONFIGS

from mmbixt.backbones import BiSASwin
from mmbixt.config import PROJECTS

TOOL = PROJECTS / 'studies/tools/feature_dissimilarity.py'
ARCH = dict(embed_dims=24, depths=(1, 1), num_heads=(3, 6), window_size=4)


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Configs and weights of a small Swin and BiSA-Swin, and an image."""
    monkeypatch.chdir(tmp_path)
    arguments = []
    for name in ('swin', 'bisa_swin'):
        backbone = dict(arch=dict(_delete_=True, **ARCH), out_indices=(1,))
        base = f'{CONFIGS}/bisa_swin/semfpn_{name}_t_ade20k.py'
        Path(f'{name}.py').write_text(f'_base_ = {base!r}\nmodel = dict(backbone={backbone})')
        stages = (0,) if name == 'bisa_swin' else ()
        model = BiSASwin(ARCH, stages, 'learned', out_indices=(1,))
        torch.save(model.state_dict(), f'{name}.pth')
        arguments += [f'{name}.py', f'{name}.pth']
    cv2.imwrite('dog.png', torch.randint(0, 256, (60, 80, 3), dtype=torch.uint8).numpy())
    return [*arguments, 'dog.png']


def test_a_picture_of_two_models(within, arguments):
    done = within(TOOL, *arguments)
    assert done.stdout.endswith('work_dirs/dissimilarity/dog.png\n')
    assert cv2.imread('work_dirs/dissimilarity/dog.png').shape[1] > 800


def test_without_scikit_image(within, arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, 'skimage.metrics', None)
    done = within(TOOL, *arguments, fails=True)
    assert done.stderr.startswith('error: pip install scikit-image')

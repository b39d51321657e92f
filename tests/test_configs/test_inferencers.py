"""Stock inferencers with our configs, in a process that does not import mmbixt first."""

import subprocess
import sys

import torch
from helpers import CONFIGS, official_state

PROGRAM = """
import numpy as np
from {module} import {inferencer}
inferencer = {inferencer}({config!r}, weights='whole.pth', device='cpu')
result = inferencer(np.zeros((72, 100, 3), np.uint8))
print(result['predictions'])
"""


def call(folder, **names):
    code = PROGRAM.format(**names)
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_segmentation_with_a_whole_model_of_the_authors(tmp_path):
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), tmp_path / 'whole.pth')
    config = str(CONFIGS / 'xcit/semfpn_xcit_t12_p16_ade20k.py')
    output = call(tmp_path, module='mmseg.apis', inferencer='MMSegInferencer', config=config)
    assert 'a whole model of the XCiT authors' in output
    assert 'do not match' not in output
    assert 'missing keys' not in output


def test_detection(tmp_path):
    config = str(CONFIGS / 'xcit/maskrcnn_xcit_t12_p16_3x_coco.py')
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    # the heads are missing and stay random, as mmengine says; backbone and neck come in
    torch.save(dict(meta={}, state_dict=state), tmp_path / 'whole.pth')
    output = call(tmp_path, module='mmdet.apis', inferencer='DetInferencer', config=config)
    assert "'bboxes'" in output
    assert 'unexpected key in source state_dict: backbone' not in output

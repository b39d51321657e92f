import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import torch

from mmbixt.backbones import BiFormer

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / 'configs/biformer/semfpn_biformer_t_ade20k.py'


def call(folder, *arguments):
    command = [sys.executable, ROOT / 'tools/analysis/visualize_attention.py', CONFIG, *arguments]
    command = [str(part) for part in command]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_pictures_of_a_point(tmp_path):
    state = BiFormer('tiny').state_dict()
    torch.save({f'backbone.{key}': value for key, value in state.items()}, tmp_path / 'x.pth')
    cv2.imwrite(str(tmp_path / 'dog.jpg'), np.zeros((30, 40, 3), np.uint8))
    options = ['--layers', '0.1', '3', '--point', '39', '29']
    done = call(tmp_path, 'x.pth', 'dog.jpg', *options)
    assert done.returncode == 0, done.stderr[-2000:]
    names = [f'layer_{i}_point_attention.png' for i in ('0.1', '3.0', '3.1')]
    files = [f'work_dirs/attention/dog/{name}' for name in names]
    assert done.stdout.splitlines()[-3:] == files
    assert 'dog.jpg: 40 x 30 pixels, seen at' in done.stdout
    assert all(cv2.imread(str(tmp_path / file)).shape[1] > 800 for file in files)
    # of the file's pixels, not of the resized image's
    done = call(tmp_path, 'x.pth', 'dog.jpg', '--point', '40', '29')
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        'error: The point 40 29 is outside the image, which has x from 0 to 39 and y from 0 to 29.'
    )


def test_wrong_arguments(tmp_path):
    done = call(tmp_path, 'x.pth', 'nope.jpg')
    assert done.returncode == 1
    assert done.stderr == 'FileNotFoundError: There is no image at nope.jpg.\n'
    done = call(tmp_path, 'x.pth', 'dog.jpg', '--heads', 'all')
    assert done.returncode == 2
    assert "'all' is none of 'mean', 'each', a number from 0" in done.stderr

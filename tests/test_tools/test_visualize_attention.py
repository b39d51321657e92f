from pathlib import Path

import cv2
import numpy as np
import torch

from mmbixt.backbones import BiFormer

TOOL = 'analysis/visualize_attention.py'
CONFIG = Path(__file__).parents[2] / 'configs/biformer/semfpn_biformer_t_ade20k.py'


def test_pictures_of_a_point(within, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arch = dict(embed_dims=(32, 32, 32, 32), depths=(2, 1, 1, 2))
    small = dict(backbone=dict(arch=dict(_delete_=True, **arch)))
    Path('small.py').write_text(f'_base_ = {str(CONFIG)!r}\nmodel = {small}')
    state = BiFormer(arch).state_dict()
    torch.save({f'backbone.{key}': value for key, value in state.items()}, 'x.pth')
    cv2.imwrite('dog.jpg', np.zeros((30, 40, 3), np.uint8))
    arguments = TOOL, 'small.py', 'x.pth', 'dog.jpg', '--point'
    done = within(*arguments, 39, 29, '--layers', '0.1', '3')
    names = [f'layer_{i}_point_attention.png' for i in ('0.1', '3.0', '3.1')]
    files = [f'work_dirs/attention/dog/{name}' for name in names]
    assert done.stdout.splitlines()[-3:] == files
    assert 'dog.jpg: 40 x 30 pixels, resized to' in done.stdout
    assert all(cv2.imread(file).shape[1] > 800 for file in files)
    # in pixels of the file, not of the resized image
    done = within(*arguments, 40, 29, fails=True)
    assert 'error: The point 40 29 is outside the image, which has x from 0 to 39' in done.stderr


def test_wrong_arguments(within, tmp_path):
    done = within(TOOL, CONFIG, 'x.pth', 'nope.jpg', fails=True)
    assert done.stderr == 'FileNotFoundError: There is no image at nope.jpg.\n'
    assert 'which is a folder.' in within(TOOL, CONFIG, 'x.pth', tmp_path, fails=True).stderr
    done = within(TOOL, CONFIG, 'x.pth', 'dog.jpg', '--heads', 'all', fails=True)
    assert "'all' is not 'mean', 'each' or a number from 0" in done.stderr
    noise = np.random.RandomState(0).randint(0, 255, (64, 64, 3), np.uint8)
    image = cv2.imencode('.jpg', noise)[1].tobytes()
    for content in (b'', b'text', image[: len(image) // 2]):
        (tmp_path / 'dog.jpg').write_bytes(content)
        done = within(TOOL, CONFIG, 'x.pth', tmp_path / 'dog.jpg', fails=True)
        assert done.stderr.endswith('is not an image that can be read, or is incomplete.\n')

"""tools/predict.py: names of files, broken images, and what it writes."""

import json
import shutil
from importlib import import_module

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS, DefaultScope
from PIL import Image
from samples import orient

from mmbixt.config import read_config

NAMES = {'scene_0.jpg', 'trip/b.png', 'trip/scene_1.jpg'}
PALETTE = [(0, 0, 255), (0, 9, 0), (9, 0, 0)]


@pytest.fixture
def photos(project, tmp_path):
    """Photos in a folder and a subfolder, two of which have one name, and a broken file."""
    for name in ('scene_0.jpg', 'trip/scene_1.jpg', 'trip/b.png'):
        path = tmp_path / 'photos' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), cv2.imread(str(project / 'data/images/scene_1.jpg')))
    orient(tmp_path / 'photos/scene_0.jpg', 6)
    (tmp_path / 'photos/trip/broken.jpg').write_bytes(b'no image')
    return tmp_path / 'photos'


def predict(within, project, *arguments, **options):
    model = project / 'mine.py', project / 'mine.pth'
    return within('predict.py', *model, *arguments, '--device', 'cpu', **options)


def files(folder):
    return sorted(str(x.relative_to(folder)) for x in folder.rglob('*') if x.is_file())


def test_folder(within, project, photos, tmp_path):
    options = photos, '--out', tmp_path / 'out', '--overlay', '--probabilities', '--scale', '1'
    done = predict(within, project, *options, fails=True)
    assert done.stdout.splitlines()[-1].startswith('3 of 4 images predicted, 1 failed')
    assert 'broken.jpg' in done.stderr
    ends = '.png', '_overlay.jpg', '_probability.png'
    names = [name + end for name in ('scene_0', 'trip/b', 'trip/scene_1') for end in ends]
    assert files(tmp_path / 'out') == sorted([*names, 'legend.png'])
    with Image.open(tmp_path / 'out/legend.png') as legend:
        assert {*PALETTE} < {colour[:3] for _, colour in legend.getcolors(10**6)}
    with Image.open(tmp_path / 'out/scene_0.png') as labels:
        assert labels.size == (48, 80)  # turned, as in training
        assert np.array(labels).max() < 3
        assert labels.getpalette()[:9] == [*sum(PALETTE, ())]


def test_no_file_of_another_image_is_lost(within, project, photos, tmp_path):
    (photos / 'trip/broken.jpg').unlink()
    shutil.copy(photos / 'trip/b.png', photos / 'trip/b.jpg')
    arguments = photos / '*' / 'b.*', photos / 'trip', '--out', tmp_path / 'out'
    once = predict(within, project, *arguments)
    assert once.stdout.splitlines()[-1].startswith('3 of 3 images predicted, 0 failed')
    assert len(files(tmp_path / 'out')) == 3
    one = photos / 'trip/b.png'
    again = predict(within, project, one, '--out', photos / 'trip', fails=True)
    assert 'exists, choose another folder: --out' in again.stderr
    assert files(photos / 'trip') == ['b.jpg', 'b.png', 'scene_1.jpg']


@pytest.mark.parametrize('kind', ['maskrcnn_xcit_t12_p16_3x_coco', 'xcit_n12_p16_in1k'])
def test_detector_and_classifier(within, photos, tmp_path, kind):
    config = read_config(kind)
    config.model.backbone.init_cfg = None
    if config.default_scope == 'mmdet':
        config.test_dataloader.dataset.pipeline[1].scale = (96, 64)
        config.model.test_cfg.rcnn.score_thr = 0.0
    config.dump(str(tmp_path / 'config.py'))
    with DefaultScope.overwrite_default_scope(config.default_scope):
        import_module(f'{config.default_scope}.models')
        model = MODELS.build(config.model)
    torch.save(dict(meta={}, state_dict=model.state_dict()), tmp_path / 'model.pth')
    model = tmp_path / 'config.py', tmp_path / 'model.pth'
    options = '--out', tmp_path / 'out', '--device', 'cpu'
    done = within('predict.py', *model, photos, *options, fails=True)
    assert done.stdout.splitlines()[-1].startswith('3 of 4 images predicted, 1 failed')
    if config.default_scope == 'mmdet':
        names = ['predictions.json', 'scene_0.jpg', 'trip/b.jpg', 'trip/scene_1.jpg']
        found = json.loads((tmp_path / 'out/predictions.json').read_text())
        assert {x['file_name'] for x in found['images']} == NAMES
        assert {x['image_id'] for x in found['annotations']} <= {1, 2, 3}
        assert found['annotations']
        assert found['categories'][0] == dict(id=1, name='person')
    else:
        names = ['predictions.jsonl', 'scene_0.png', 'trip/b.png', 'trip/scene_1.png']
        lines = (tmp_path / 'out/predictions.jsonl').read_text().splitlines()
        assert {json.loads(x)['image'] for x in lines} == NAMES
    assert files(tmp_path / 'out') == names

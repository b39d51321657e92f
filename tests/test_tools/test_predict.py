"""tools/predict.py: names of files, broken images, and what it writes."""

import json
import shutil
from importlib import import_module
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from detectors import build_detector
from mmengine.registry import MODELS, DefaultScope
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
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
    return within('predict.py', *model, '--device', 'cpu', *arguments, **options)


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
    if not torch.cuda.is_available():
        again = predict(within, project, one, '--out', 'out', '--device', 'cuda', fails=True)
        assert again.stderr == 'ConfigError: --device cuda: torch finds no GPU.\n'
    again = predict(within, project, one, '--out', photos / 'trip', fails=True)
    assert 'exists, choose another folder: --out' in again.stderr
    assert files(photos / 'trip') == ['b.jpg', 'b.png', 'scene_1.jpg']


def test_classifier(within, photos, tmp_path):
    """Of a file that names no classes: they are the config's."""
    config = read_config('xcit_n12_p16_in1k')
    config.model.update(backbone=dict(config.model.backbone, init_cfg=None))
    names = [f'a long name, the name of class {i} in many words' for i in range(1000)]
    config.test_dataloader.dataset.metainfo = dict(classes=names)
    config.dump(str(tmp_path / 'config.py'))
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        import_module('mmpretrain.models')
        model = MODELS.build(config.model)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'model.pth')
    model = tmp_path / 'config.py', tmp_path / 'model.pth'
    options = '--out', tmp_path / 'out', '--device', 'cpu'
    done = within('predict.py', *model, photos, *options, fails=True)
    assert done.stdout.splitlines()[-1].startswith('3 of 4 images predicted, 1 failed')
    lines = (tmp_path / 'out/predictions.jsonl').read_text().splitlines()
    found = {x.pop('image'): x for x in map(json.loads, lines)}
    assert found.keys() == NAMES
    assert all(x['pred_class'] == names[x['pred_label']] for x in found.values())
    config.data_preprocessor.to_rgb = False  # as of CIFAR's images in memory
    del config.test_dataloader.dataset.pipeline[0]
    config.dump(str(tmp_path / 'config.py'))
    (photos / 'trip/broken.jpg').unlink()
    within('predict.py', *model, photos, '--out', tmp_path / 'again', '--device', 'cpu')
    assert (tmp_path / 'again/predictions.jsonl').read_text().splitlines() == lines
    pictures = 'scene_0.png', 'trip/b.png', 'trip/scene_1.png'
    assert files(tmp_path / 'out') == ['predictions.jsonl', *pictures]


def statistics(annotations, results, kind):
    """COCO's of a file; without boxes objects have the sizes of their masks, as in mmdet."""
    results = json.loads(results.read_text())
    for one in results if kind == 'segm' else ():
        del one['bbox']
    truth = COCO(annotations)
    evaluation = COCOeval(truth, truth.loadRes(results), kind)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation.stats[:6].round(3).tolist()


@pytest.mark.zoo
def test_detector(within, photos, tmp_path, monkeypatch):
    """AP of the results is that of the test, of objects near to what is found."""
    monkeypatch.chdir(tmp_path)
    heads = {f'model.roi_head.{name}_head.num_classes': 3 for name in ('bbox', 'mask')}
    model, config = build_detector('maskrcnn_xcit_t12_p16_3x_coco', **heads)
    torch.save(dict(state_dict=model.state_dict()), 'model.pth')
    dataset = config.test_dataloader.dataset
    dataset.update(data_root='photos', data_prefix=dict(img=''), ann_file='../objects.json')
    dataset.metainfo = dict(classes=('cat', 'dog', 'cow'))
    dataset.pipeline[1].scale = (128, 96)
    config.model.test_cfg.rcnn.max_per_img = 20
    config.test_dataloader.update(num_workers=0, persistent_workers=False)
    config.test_evaluator.ann_file = 'objects.json'
    config.dump('config.py')
    arguments = 'predict.py', 'config.py', 'model.pth', '--device', 'cpu'
    within(*arguments, photos, '--out', 'new', '--score', '1', fails=True)
    pictures = ['scene_0.jpg', 'trip/b.jpg', 'trip/scene_1.jpg']
    assert files(tmp_path / 'new') == ['images.json', 'predictions.json', *pictures]
    found = json.loads(Path('new/predictions.json').read_text())
    about = json.loads(Path('new/images.json').read_text())
    assert {x['file_name'] for x in about['images']} == NAMES
    names = [dict(id=i, name=x) for i, x in enumerate(('cat', 'dog', 'cow'), 1)]
    assert about['categories'] == names
    # some of the results, moved, with other numbers of images and classes
    for one in about['images']:
        one['id'] = 7 * one['id'] - 7
    for i, one in enumerate(objects := found[::4]):
        (x, y, width, height), number = one['bbox'], one['image_id']
        box = [x + 0.1 * width, y, width, height]
        one.update(id=i + 1, image_id=7 * number - 7, iscrowd=0, bbox=box, area=width * height)
        one['category_id'] *= 10
    for one in about['categories']:
        one['id'] *= 10
    Path('objects.json').write_text(json.dumps(dict(about, annotations=objects)))
    (photos / 'trip/broken.jpg').unlink()
    within(*arguments, photos, '--out', 'known', '--score', '1')
    within('test.py', 'config.py', 'model.pth', '--work-dir', 'test')
    [scores] = Path('test').glob('*/2*.json')
    scores = json.loads(scores.read_text())
    for kind in ('bbox', 'segm'):
        actual = statistics('objects.json', Path('known/predictions.json'), kind)
        assert actual == [
            scores[f'coco/{kind}_mAP{x}'] for x in ('', '_50', '_75', '_s', '_m', '_l')
        ]
        assert actual[0] > 0.1

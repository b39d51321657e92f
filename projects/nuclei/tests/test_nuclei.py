"""On twelve of the images, as prepare.py writes them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools import mask as rle
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmbixt.config import PROJECTS
from mmbixt.errors import UserError

NUCLEI, DATA = PROJECTS / 'nuclei', Path(__file__).parent / 'data'


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(NUCLEI)
    import prepare
    import table

    monkeypatch.setattr(prepare, 'IMAGES', 12)
    yield prepare, table
    for name in ('prepare', 'table', 'tables'):
        sys.modules.pop(name)


def test_prepares_what_is_in_a_clone(modules, tmp_path, monkeypatch):
    for file in DATA.glob('*.json'):
        content = json.loads(file.read_text())
        for image in content['images']:
            folder = tmp_path / 'stage1_train' / image['file_name'].removesuffix('.png')
            (folder / 'images').mkdir(parents=True)
            (folder / 'masks').mkdir()
            pixels = (DATA / file.stem / image['file_name']).read_bytes()
            (folder / 'images' / image['file_name']).write_bytes(pixels)
            for x in content['annotations']:
                if x['image_id'] == image['id']:
                    mask = 255 * rle.decode(x['segmentation'])
                    cv2.imwrite(str(folder / f'masks/{x["id"]:03}.png'), mask)
    monkeypatch.setattr(sys, 'argv', ['prepare.py', str(tmp_path), '--out', str(tmp_path / 'out')])
    modules[0].main()
    for file in DATA.rglob('*.*'):
        written = tmp_path / 'out' / file.relative_to(DATA)
        if file.suffix == '.json':
            assert json.loads(written.read_text()) == json.loads(file.read_text())
        else:
            assert np.array_equal(cv2.imread(str(written)), cv2.imread(str(file)))
    mask = next(tmp_path.glob('stage1_train/*/masks/001.png'))
    cv2.imwrite(str(mask), np.zeros((256, 256), np.uint8))
    with pytest.raises(UserError, match=r'001\.png is empty'):
        modules[0].main()


def test_scores_equal_those_of_pycocotools(modules):
    random, truths = np.random.default_rng(0), json.loads((DATA / 'train.json').read_text())
    found = []
    for x in truths['annotations']:
        mask = np.roll(rle.decode(x['segmentation']), random.integers(-3, 4, 2), (0, 1))
        for score in random.random(random.integers(3)):
            y = rle.encode(np.asfortranarray(mask))
            found.append(dict(x, score=score, segmentation=y, bbox=rle.toBbox(y).tolist()))
    box, mask, mask50, _, share = modules[1].scores(truths, found)
    for kind, other, expected in (('bbox', 'segmentation', box), ('segm', 'bbox', mask)):
        coco = COCO()
        coco.dataset = truths
        coco.createIndex()
        parts = [{k: v for k, v in x.items() if k != other} for x in found]
        evaluation = COCOeval(coco, coco.loadRes(parts), kind)
        evaluation.params.maxDets = [1, 10, 400]
        evaluation.evaluate()
        evaluation.accumulate()
        precision = evaluation.eval['precision'][:, :, 0, 0, -1]
        assert 100 * precision.mean() == pytest.approx(expected)
    assert 100 * precision[0].mean() == pytest.approx(mask50)

    tp = fp = fn = (
        0  # true nuclei do not overlap, so an object has IoU 0.5 with one of them at most
    )
    for image in truths['images']:
        true, own = (
            np.array(
                [rle.decode(x['segmentation']) for x in objects if x['image_id'] == image['id']]
            )
            for objects in (truths['annotations'], [x for x in found if x['score'] >= 0.5])
        )
        both = np.einsum('ihw,jhw->ij', true, own, dtype=np.int64)
        union = true.sum((1, 2))[:, None] + own.sum((1, 2)) - both
        hit = (both >= 0.5 * union).any(1).sum()
        tp, fp, fn = tp + hit, fp + len(own) - hit, fn + len(true) - hit
    assert share == pytest.approx(100 * tp / (tp + fp + fn))


@pytest.mark.zoo
def test_trains_tests_and_writes_the_table(tmp_path):
    (tmp_path / 'data').mkdir()
    (tmp_path / 'data/nuclei').symlink_to(DATA)
    readme = tmp_path / 'README.md'
    readme.write_text('<!-- table: table.py -->\n<!-- end of table -->\n')
    environment = {
        **os.environ,
        'PATH': f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
        'NETWORKS': 'resnet18',
        'README': str(readme),
        'FLAGS': '--cfg-options train_dataloader.batch_size=2 default_hooks.logger.interval=3',
    }
    command = ['bash', NUCLEI / 'run.sh', '12']
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    rows = {row.split(' | ')[0]: row.split(' | ') for row in readme.read_text().splitlines()}
    assert rows['| ResNet-18'][1:3] == ['20.2 M', '24']
    assert 'not run' in rows['| Swin-T'][2]
    losses = [
        x['loss']
        for file in tmp_path.rglob('resnet18/*/vis_data/scalars.json')
        for x in map(json.loads, file.read_text().splitlines())
        if 'loss' in x
    ]
    assert losses[-1] < losses[0]

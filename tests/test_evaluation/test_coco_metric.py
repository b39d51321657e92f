"""Boundary AP of mmengine's evaluator on a small data set."""

import json

import cv2
import numpy as np
import pytest
import torch
from documents import shown
from mmdet.evaluation.metrics import CocoMetric
from mmdet.structures import DetDataSample
from mmengine.evaluator import Evaluator
from mmengine.structures import InstanceData
from pycocotools import mask as coder

from mmbixt.errors import UserError
from mmbixt.evaluation.coco_metric import BoundaryCocoMetric

HEIGHT, WIDTH = 120, 160
CLASSES = ('dog', 'cat', 'bird')
CATEGORY_IDS = (7, 3, 5)  # not sorted, with gaps
KEYS = [f'coco/boundary_mAP{suffix}' for suffix in ('', '_50', '_75', '_s', '_m', '_l')]


def ellipse(y, x, height, width):
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    return cv2.ellipse(mask, (x, y), (width, height), 0, 0, 360, 1, -1)


# (label, mask) of the objects of each image; one image has none, and no object is a bird
TRUTHS = {
    11: [(0, ellipse(50, 60, 30, 40)), (1, ellipse(100, 140, 15, 30))],
    12: [],
    10: [(1, ellipse(60, 80, 50, 70)), (0, ellipse(20, 20, 8, 8))],
}


def rle(mask):
    code = coder.encode(np.asfortranarray(mask))
    return dict(code, counts=code['counts'].decode())


@pytest.fixture
def ann_file(tmp_path):
    objects = [(i, label, mask) for i, found in TRUTHS.items() for label, mask in found]
    annotations = []
    for number, (image, label, mask) in enumerate(objects, 1):
        where = dict(segmentation=rle(mask), bbox=cv2.boundingRect(mask), area=int(mask.sum()))
        ids = dict(id=number, image_id=image, category_id=CATEGORY_IDS[label], iscrowd=0)
        annotations.append(ids | where)
    images = [dict(id=i, height=HEIGHT, width=WIDTH, file_name=f'{i}.jpg') for i in TRUTHS]
    categories = [dict(id=i, name=name) for i, name in zip(CATEGORY_IDS, CLASSES, strict=True)]
    file = tmp_path / 'instances.json'
    file.write_text(json.dumps(dict(images=images, annotations=annotations, categories=categories)))
    return str(file)


def shifted(objects, pixels):
    return [(label, np.roll(mask, (pixels, pixels), (0, 1))) for label, mask in objects]


def sample(image, objects):
    """The output of mmdet's models for one image."""
    boxes = [cv2.boundingRect(mask) for _, mask in objects]
    found = InstanceData(
        bboxes=torch.tensor([(x, y, x + w, y + h) for x, y, w, h in boxes]).view(-1, 4).float(),
        scores=torch.linspace(0.9, 0.3, len(objects)),
        labels=torch.tensor([label for label, _ in objects], dtype=torch.long),
    )
    stack = np.array([mask for _, mask in objects] or np.empty((0, HEIGHT, WIDTH)), bool)
    found.masks = torch.from_numpy(stack)
    about = dict(img_id=image, ori_shape=(HEIGHT, WIDTH))
    return DetDataSample(metainfo=about, pred_instances=found)


def evaluate(metric, detections):
    evaluator = Evaluator(metric)
    evaluator.dataset_meta = dict(classes=CLASSES)
    for image, objects in detections.items():
        evaluator.process([sample(image, objects)])
    return evaluator.evaluate(len(detections))


def test_other_metrics_equal_those_of_mmdet(ann_file):
    detections = {i: shifted(objects, 2) + shifted(objects, 9) for i, objects in TRUTHS.items()}
    options = dict(ann_file=ann_file, metric=['bbox', 'segm'], classwise=True)
    expected = evaluate(CocoMetric(**options), detections)
    found = evaluate(BoundaryCocoMetric(**options), detections)
    assert 0 < found['coco/boundary_mAP'] < expected['coco/segm_mAP'] < 1
    np.testing.assert_equal({key: found[key] for key in expected}, expected)
    by_class = [f'coco/boundary_{name}_precision' for name in CLASSES]
    assert set(found) - set(expected) == {*KEYS, *by_class}


def test_result_files_of_other_models(ann_file, tmp_path, monkeypatch):
    detections = {i: shifted(objects, 2) for i, objects in TRUTHS.items()}
    options = dict(ann_file=ann_file, metric='segm', outfile_prefix=f'{tmp_path}/results')
    found = evaluate(BoundaryCocoMetric(**options), detections)
    monkeypatch.chdir(tmp_path)
    (code,), names = shown('coco results'), {}
    exec(code, names)
    stats = names['evaluation'].stats[:6].round(3)
    np.testing.assert_equal(stats, [found[key] for key in KEYS])


def test_options_have_the_same_effect_as_for_mask_ap(ann_file):
    """With inner bands as wide as the objects, boundary AP is mask AP."""
    detections = {i: shifted(objects, 4)[::-1] + objects for i, objects in TRUTHS.items()}
    items = [key.removeprefix('coco/boundary_') for key in KEYS] + ['AR@100', 'AR@300']
    options = dict(iou_thrs=np.array([0.5, 0.75, 0.8]), proposal_nums=(2, 3, 100))
    metric = BoundaryCocoMetric(ann_file, 'segm', ratio=0.5, metric_items=items, **options)
    found = evaluate(metric, detections)
    expected = [found[f'coco/segm_{item}'] for item in items]
    assert [found[f'coco/boundary_{item}'] for item in items] == expected
    assert 0 < min(expected) < max(expected)


def test_classes_are_distinguished_and_only_selected_classes_and_images_count(ann_file):
    dogs = {i: [o for o in objects if o[0] == 0] for i, objects in TRUTHS.items()}
    found = evaluate(BoundaryCocoMetric(ann_file, metric=[], classwise=True), dogs)
    by_class = [found[f'coco/boundary_{name}_precision'] for name in CLASSES]
    np.testing.assert_equal(by_class, [1, 0, np.nan])
    assert found['coco/boundary_mAP'] == 0.5
    metric = BoundaryCocoMetric(ann_file, metric=[])
    metric.dataset_meta, metric.img_ids = dict(classes=['cat']), [10]
    metric.process({}, [sample(10, [(0, TRUTHS[10][0][1])]).to_dict()])
    assert metric.evaluate(1)['coco/boundary_mAP'] == 1


def test_masks_of_another_size_and_boxes_are_refused(ann_file):
    scaled = {10: [(0, cv2.resize(TRUTHS[10][0][1], (WIDTH // 2, HEIGHT // 2)))]}
    with pytest.raises(ValueError, match='but its size is'):
        evaluate(BoundaryCocoMetric(ann_file, metric=[]), scaled)
    boxes = sample(10, TRUTHS[10])
    del boxes.pred_instances.masks
    with pytest.raises(UserError, match='needs masks; for a detector of boxes: CocoMetric'):
        BoundaryCocoMetric(ann_file, metric=[]).process({}, [boxes.to_dict()])

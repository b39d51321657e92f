"""Boundary AP's overlaps, by faster-coco-eval, against the definition."""

import cv2
import numpy as np
import pytest
from faster_coco_eval import COCO, COCOeval_faster
from pycocotools import mask as coder
from scipy.ndimage import binary_erosion

HEIGHT, WIDTH = 60, 80  # a diagonal of 100 pixels: the ratio is the width in percent


def inner_band(mask, distance):
    """Reference: the mask without its erosion by ``distance`` steps of a 3 x 3 square."""
    return mask - binary_erosion(mask, np.ones((3, 3)), distance)


def overlaps_by_definition(detections, truths, crowd, ratio):
    def iou(a, b, crowd=False):
        return (a & b).sum() / max(1, a.sum() if crowd else (a | b).sum())

    distance = max(1, round(ratio * (HEIGHT**2 + WIDTH**2) ** 0.5))
    found, true = ([(x, inner_band(x, distance)) for x in masks] for masks in (detections, truths))
    overlaps = np.array([[min(iou(d, t), iou(a, b)) for t, b in true] for d, a in found])
    for j in crowd:
        overlaps[:, j] = [iou(detection, truths[j], crowd=True) for detection in detections]
    return overlaps


def box(y, x, height, width):
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[y : y + height, x : x + width] = 1
    return mask


def ellipse(y, x, height, width):
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    return cv2.ellipse(mask, (x, y), (width, height), 0, 0, 360, 1, -1)


def blobs(rng):
    """Large shapes with holes and islands, cut off by the border of the image."""
    noise = cv2.GaussianBlur(rng.normal(size=(HEIGHT, WIDTH)).astype(np.float32), (0, 0), 6)
    return (noise > -0.02).astype(np.uint8)


def shapes(rng):
    shifted = ellipse(33, 41, 20, 28)
    ring = ellipse(30, 40, 20, 28) - ellipse(30, 40, 9, 12)
    line, whole = box(20, 5, 1, 70), box(0, 0, HEIGHT, WIDTH)
    edges = [box(0, 10, 20, 30), box(45, 60, 15, 20), box(10, 0, 40, 12)]
    squares = [box(7, 9, side, side) for side in (0, 1, 4, 5, 6)]  # 5: smallest with an interior
    corners = [box(0, 0, 1, 1), box(59, 79, 1, 1)]
    return [shifted, ring, line, whole, *edges, *squares, *corners, *(blobs(rng) for _ in range(4))]


def encode(mask):
    return coder.encode(np.asfortranarray(mask))


def instances(masks):
    """Those of one image and one category."""
    return [
        dict(id=i, image_id=0, category_id=1, segmentation=encode(mask), area=int(mask.sum()))
        for i, mask in enumerate(masks, 1)
    ]


@pytest.mark.parametrize('ratio', [0.001, 0.02, 0.2])
def test_overlaps_against_the_definition(ratio):
    rng = np.random.default_rng(0)
    truths, detections = shapes(rng), shapes(rng)[::-1]
    crowd = (1, 3, 12)
    true = [x | dict(iscrowd=int(i in crowd)) for i, x in enumerate(instances(truths))]
    found = [x | dict(score=1 / x['id']) for x in instances(detections)]
    coco, images = COCO(), [dict(id=0, height=HEIGHT, width=WIDTH)]
    coco.dataset = dict(images=images, annotations=true, categories=[dict(id=1, name='a')])
    coco.createIndex()
    options = dict(iouType='boundary', boundary_dilation_ratio=ratio)
    evaluation = COCOeval_faster(coco, coco.loadRes(found), **options)
    evaluation.evaluate()
    (overlaps,) = evaluation.ious.values()
    expected = overlaps_by_definition(detections, truths, crowd, ratio)
    np.testing.assert_allclose(overlaps, expected, rtol=1e-12)

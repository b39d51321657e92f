"""Four small images with labels for mmseg, mmdet and mmpretrain, and mistakes in them."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

CLASSES = ('sky', 'road', 'car')
LOAD = dict(type='LoadImageFromFile')


def write_samples(root: Path) -> None:
    """Images of 32 x 24 pixels with label maps of three classes, and their COCO file."""
    rng = np.random.default_rng(0)
    for folder in ('images', 'labels'):
        (root / folder).mkdir()
    for i in range(4):
        pixels = rng.integers(0, 255, (24, 32, 3), np.uint8)
        Image.fromarray(pixels).save(root / f'images/{i}.jpg')
        labels = rng.integers(0, 3, (24, 32), np.uint8)
        labels[0] = 255
        Image.fromarray(labels).save(root / f'labels/{i}.png')
    images = [dict(id=i, file_name=f'{i}.jpg', width=32, height=24) for i in range(4)]
    box = dict(bbox=[2, 2, 20, 20], area=400, iscrowd=0, category_id=1)
    annotations = [dict(id=i, image_id=i, **box) for i in range(4)]
    categories = [dict(id=i, name=name) for i, name in enumerate(CLASSES)]
    content = dict(images=images, annotations=annotations, categories=categories)
    (root / 'coco.json').write_text(json.dumps(content))


def segmentation(root: Path, load: dict = LOAD, check: dict | None = None, **options: Any) -> dict:
    """Config of the data set; labels are loaded after resizing, as in tests."""
    steps = [load, dict(type='mmseg.Resize', scale=(16, 12)), dict(type='mmseg.LoadAnnotations')]
    steps += [dict(type='mmbixt.CheckSample', **(check or dict(num_classes=3)))]
    return dict(
        type='mmseg.BaseSegDataset',
        data_prefix=dict(img_path=f'{root}/images', seg_map_path=f'{root}/labels'),
        metainfo=dict(classes=CLASSES),
        pipeline=[*steps, dict(type='mmseg.PackSegInputs')],
        **options,
    )


def detection(root: Path, load: dict = LOAD, check: dict | None = None, **options: Any) -> dict:
    steps = [load, dict(type='mmdet.LoadAnnotations', with_bbox=True)]
    steps += [dict(type='mmbixt.CheckSample', **(check or {}))]
    steps += [dict(type='mmdet.Resize', scale=(32, 24))]
    return dict(
        type='mmdet.CocoDataset',
        ann_file=f'{root}/coco.json',
        data_prefix=dict(img=f'{root}/images'),
        metainfo=dict(classes=CLASSES),
        pipeline=[*steps, dict(type='mmdet.PackDetInputs')],
        **options,
    )


def edit_coco(root: Path, function: Any) -> None:
    content = json.loads((root / 'coco.json').read_text())
    function(content)
    (root / 'coco.json').write_text(json.dumps(content))


def edit_label(path: Path, function: Any) -> None:
    """Replace the label map (24,32) of a file by a function of it."""
    cv2.imwrite(str(path), function(cv2.imread(str(path), cv2.IMREAD_UNCHANGED)))


def orient(path: Path, tag: int) -> None:
    """Set the EXIF orientation of an image."""
    with Image.open(path) as picture:
        exif = picture.getexif()
        exif[0x0112] = tag
        picture.save(path, exif=exif)

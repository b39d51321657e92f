"""mmbixt.CheckSample in pipelines of mmseg and mmdet."""

import numpy as np
import pytest
from mmengine.registry import DATASETS
from PIL import Image
from samples import LOAD, detection, edit_coco, edit_label, orient, segmentation

from mmbixt.errors import UserError


def read(config):
    dataset = DATASETS.build(config)
    return [dataset[i] for i in range(len(dataset))]


def label(function):
    return lambda root: edit_label(root / 'labels/1.png', function)


def narrow(root):
    Image.new('RGB', (30, 24)).save(root / 'images/1.jpg')


MISTAKES = [
    (segmentation, lambda root: orient(root / 'images/1.jpg', 6), '1.png is .*1.jpg .*EXIF orie'),
    (segmentation, label(lambda x: x[:20]), '1.png is for 32 x 20 pixels, but .*1.jpg has 32 x 24'),
    (segmentation, label(lambda x: np.dstack([x] * 3)), r'1.png has the shape \(24, 32, 3\)'),
    (segmentation, label(lambda x: x + np.uint16(300)), '1.png has ids up to 555; mmseg keeps 8'),
    (segmentation, label(lambda x: x + 2), r'1.png has the ids 3 \(\d+ pixels\), 4 .*0 to 2 are c'),
    (detection, narrow, 'annotation of .*1.jpg is for 32 x 24 pixels, but .*1.jpg has 30 x 24'),
    (detection, lambda root: orient(root / 'images/1.jpg', 8), 'annotation of .*EXIF orientation'),
]


@pytest.mark.parametrize(('make', 'spoil', 'message'), MISTAKES)
def test_mistakes_name_the_file(root, make, spoil, message):
    spoil(root)
    with pytest.raises(UserError, match=message):
        read(make(root))


def test_labels_that_fit_an_image_as_it_is_read(root):
    """Turned like it, mirrored, or beside an image that is read as it is stored."""
    orient(root / 'images/0.jpg', 3)
    orient(root / 'images/1.jpg', 6)
    stored = dict(LOAD, color_type='color_ignore_orientation')
    read(segmentation(root, stored))
    read(detection(root, stored))
    edit_label(root / 'labels/1.png', lambda x: np.rot90(x).copy())
    edit_coco(root, lambda c: c['images'][1].update(width=24, height=32))
    read(segmentation(root))
    read(detection(root))


def test_ids_after_reduction_and_another_ignored_id(root):
    for i in range(4):
        edit_label(root / f'labels/{i}.png', lambda x: x + 1)  # 255 becomes 0
    read(segmentation(root, reduce_zero_label=True))
    edit_label(root / 'labels/1.png', lambda x: x * 20)
    with pytest.raises(UserError, match=r'has the ids 19 .*, after reduce_zero_label'):
        read(segmentation(root, reduce_zero_label=True))
    edit_label(root / 'labels/1.png', lambda x: (x == 20) * np.uint8(7))
    read(segmentation(root, check=dict(num_classes=4, ignore_index=7)))

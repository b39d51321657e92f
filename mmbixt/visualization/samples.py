"""Errors near boundaries of what mmseg's models return."""

from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np
from matplotlib.figure import Figure
from mmengine.fileio import get
from mmengine.structures import BaseDataElement

from mmbixt.errors import UserError
from mmbixt.visualization.boundary_errors import error_figure
from mmbixt.visualization.images import as_rgb


def sample_figure(
    sample: BaseDataElement,
    dataset_meta: Mapping[str, Any],
    title: str,
    width: int | float = 3,
    ignore_index: int = 255,
) -> Figure:
    """``error_figure`` of one image, with its arguments.

    Args:
        sample: with ``img_path``, ``pred_sem_seg`` and ``gt_sem_seg`` (1,H,W), of the size of the
            image file.
        dataset_meta: with ``classes`` and, if the dataset has one, ``palette``.
    """
    image = read_image(sample.img_path)
    truth, prediction = (label_map(sample, key) for key in ('gt_sem_seg', 'pred_sem_seg'))
    classes, palette = dataset_meta['classes'], dataset_meta.get('palette')
    return error_figure(image, truth, prediction, classes, palette, width, title, ignore_index)


def read_image(path: str) -> np.ndarray:
    """The pixels of an image file (H,W,3), RGB."""
    content = np.frombuffer(get(path), np.uint8)
    image = cv2.imdecode(content, cv2.IMREAD_COLOR)
    if image is None:  # of floating point numbers
        image = cv2.imdecode(content, cv2.IMREAD_UNCHANGED)
    if image is None:
        raise ValueError(f'{path} is not an image that OpenCV can read')
    return as_rgb(image)


def label_map(sample: BaseDataElement, key: str) -> np.ndarray:
    """A label map (H,W) of a sample."""
    if key not in sample:
        raise UserError(f'{sample.img_path} has no {key}.')
    return sample.get(key).data.cpu().numpy()[0]

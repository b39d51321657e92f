"""Check an image and its labels where a pipeline has loaded them."""

from os.path import isfile
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from PIL import Image

from mmbixt.errors import UserError
from mmbixt.registry import TRANSFORMS


@TRANSFORMS.register_module()
class CheckSample(BaseTransform):
    """Raise an error that names the file of an image or label that would give wrong results.

    - Images with values that are not finite.
    - Label maps (mmseg) with several channels, more than 8 bits or ids that are not classes.
    - Labels, or annotations of COCO, for another size than the image's. OpenCV turns an image by
      its EXIF data when it is read, but not the label.

    It must come directly after the transforms that load image and labels.
    ``tools/check_dataset.py`` runs it over all images of a config.

    Args:
        num_classes: ids 0 to ``num_classes - 1`` are classes; None does not check ids.
        ignore_index: the id of pixels that do not count.
    """

    def __init__(self, num_classes: int | None = None, ignore_index: int = 255) -> None:
        self.num_classes, self.ignore_index = num_classes, ignore_index

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        image, labels = results.get('img'), results.get('gt_seg_map')
        if image is not None and image.dtype.kind == 'f' and not np.isfinite(image).all():
            raise UserError(f'{results["img_path"]} has values that are NaN or infinite.')
        if labels is not None:
            self._check_labels(results, labels)
            self._check_size(results, results['seg_map_path'], labels.shape[::-1])
        elif results.get('width') and results.get('height'):  # of a COCO file
            size = results['width'], results['height']
            self._check_size(results, f'The annotation of {results["img_path"]}', size)
        return results

    def _check_labels(self, results: dict[str, Any], labels: np.ndarray) -> None:
        path = results['seg_map_path']
        if labels.ndim != 2:
            raise UserError(
                f'{path} has the shape {labels.shape}; a label map has one channel, with the ids '
                'of classes (from colours: tools/convert_labels.py).'
            )
        if isfile(path):
            with Image.open(path) as stored:
                if stored.mode[0] in 'IF' and (highest := np.max(stored)) > 255:
                    raise UserError(f'{path} has ids up to {highest}; mmseg keeps 8 bits.')
        if self.num_classes is None:
            return
        wrong = (labels < 0) | (labels >= self.num_classes)
        wrong &= labels != self.ignore_index
        if wrong.any():
            ids, counts = np.unique(labels[wrong], return_counts=True)
            pairs = [*zip(ids, counts, strict=True)][:20]
            listed = ', '.join(f'{i} ({count:,} pixels)' for i, count in pairs)
            reduced = ', after reduce_zero_label' if results.get('reduce_zero_label') else ''
            raise UserError(
                f'{path} has the ids {listed}{reduced}, but 0 to {self.num_classes - 1} are '
                f'classes and {self.ignore_index} is ignored. To check all files: '
                'tools/check_dataset.py CONFIG'
            )

    def _check_size(self, results: dict[str, Any], what: str, labelled: tuple[int, int]) -> None:
        """Compare the size (width, height) of labels with that of their image, as it was read."""
        height, width = results['ori_shape'][:2]
        if labelled == (width, height):
            return
        advice = (
            ' Perhaps the image is turned by its EXIF orientation when it is read: '
            "color_type='color_ignore_orientation' in LoadImageFromFile reads it as it is stored."
        )
        raise UserError(
            f'{what} is for {labelled[0]} x {labelled[1]} pixels, but {results["img_path"]} has '
            f'{width} x {height}.{advice * (labelled == (height, width))}'
        )

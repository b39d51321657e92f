"""Boundary AP of instance segmentation in mmdet's validation and test loops.

It is COCO's mask AP with the minimum of mask IoU and Boundary IoU as overlap (Cheng et al., CVPR
2021), computed by faster-coco-eval; for crowds the overlap is that of the masks.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from mmdet.evaluation.metrics import CocoMetric
from mmengine.logging import MMLogger

from mmbixt.errors import UserError
from mmbixt.registry import METRICS

# the order of COCOeval.stats
ITEMS = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')
ITEMS += ('AR@100', 'AR@300', 'AR@1000', 'AR_s@1000', 'AR_m@1000', 'AR_l@1000')


@METRICS.register_module()
class BoundaryCocoMetric(CocoMetric):
    """mmdet's ``CocoMetric`` with boundary AP of the masks.

    Adds ``boundary_mAP``, ``boundary_mAP_50``, ``boundary_mAP_75``, ``boundary_mAP_s``,
    ``boundary_mAP_m`` and ``boundary_mAP_l``, or those in ``metric_items``; with ``classwise`` also
    ``boundary_<class>_precision``. Without any detection it adds nothing, as mmdet's metric.

    Args:
        args: arguments of mmdet's ``CocoMetric``.
        ratio: width of the inner bands, as a fraction of the diagonal of the image.
        kwargs: arguments of mmdet's ``CocoMetric``, such as ``metric``, its other metrics (``[]``
            for none); ``use_mp_eval`` applies to those only.
    """

    def __init__(self, *args: Any, ratio: float = 0.02, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ratio = ratio

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        if any('masks' not in sample['pred_instances'] for sample in data_samples):
            raise UserError('BoundaryCocoMetric needs masks; for a detector of boxes: CocoMetric.')
        super().process(data_batch, data_samples)

    def compute_metrics(self, results: list) -> dict[str, float]:
        metrics = super().compute_metrics(results)
        if self.format_only:
            return metrics
        logger = MMLogger.get_current_instance()
        logger.info('Evaluating boundaries...')
        detections = self._detections(results)
        if not detections:
            logger.info('There are no detections, as is usual after few iterations.')
            return metrics
        truths = COCO(self._coco_api.dataset)
        evaluation = COCOeval_faster(
            truths,
            truths.loadRes(detections),
            iouType='boundary',
            boundary_dilation_ratio=self.ratio,
            print_function=logger.info,
        )
        evaluation.params.catIds = self.cat_ids
        evaluation.params.imgIds = self.img_ids
        evaluation.params.maxDets = list(self.proposal_nums)
        evaluation.params.iouThrs = self.iou_thrs
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        for item in ITEMS[:6] if self.metric_items is None else self.metric_items:
            value = float(evaluation.stats[ITEMS.index(item)])
            metrics[f'boundary_{item}'] = round(value, 3)
        if self.classwise:
            metrics.update(self._class_precision(evaluation))
        return metrics

    def _detections(self, results: list) -> list[dict]:
        """Detections in COCO's format, without boxes: COCO would use the areas of the boxes."""
        detections = []
        for _, prediction in results:
            image = self._coco_api.imgs[prediction['img_id']]
            sizes = {tuple(mask['size']) for mask in prediction['masks']}
            if sizes - {(image['height'], image['width'])}:  # faster-coco-eval would find 0
                raise ValueError(
                    f'Image {image["id"]}: masks of {sizes} pixels, but its size is '
                    f'{(image["height"], image["width"])}.'
                )
            scores = prediction.get('mask_scores', prediction['scores'])
            parts = zip(prediction['labels'], scores, prediction['masks'], strict=True)
            for label, score, mask in parts:
                about = dict(image_id=prediction['img_id'], category_id=self.cat_ids[label])
                detections.append(about | dict(score=float(score), segmentation=mask))
        return detections

    def _class_precision(self, evaluation: COCOeval_faster) -> dict[str, float]:
        """AP of each class, NaN for a class without truths."""
        precisions = evaluation.eval['precision'][:, :, :, 0, -1]  # (thresholds,recalls,classes)
        categories = self._coco_api.load_cats(evaluation.params.catIds)  # sorted by COCOeval
        precisions = np.where(precisions > -1, precisions, np.nan).mean((0, 1))
        return {
            f'boundary_{category["name"]}_precision': round(float(precision), 3)
            for category, precision in zip(categories, precisions, strict=True)
        }

"""Accuracy of classes, and IoU of parts as PointNet defined it; all in per cent."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from mmengine.evaluator import BaseMetric

from mmbixt.registry import METRICS


def shape_iou(predicted: np.ndarray, true: np.ndarray, parts: Sequence[int]) -> float:
    """Mean IoU of a shape over the parts of its category, from labels (N,).

    The IoU of a part is 1 if neither the labels nor the prediction have it.
    """
    ious = []
    for part in parts:
        a, b = predicted == part, true == part
        union = (a | b).sum()
        ious.append((a & b).sum() / union if union else 1.0)
    return float(np.mean(ious))


@METRICS.register_module()
class ShapeAccuracyMetric(BaseMetric):
    """``accuracy/overall``, and ``accuracy/class_mean`` over the classes that have shapes."""

    default_prefix = 'accuracy'

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        for shape in data_samples:
            self.results.append((int(shape['label']), int(shape['scores'].argmax())))

    def compute_metrics(self, results: list[tuple[int, int]]) -> dict[str, float]:
        by_class = defaultdict(list)
        for label, predicted in results:
            by_class[label].append(label == predicted)
        overall = np.mean([x for found in by_class.values() for x in found])
        class_mean = np.mean([np.mean(found) for found in by_class.values()])
        return dict(overall=100 * float(overall), class_mean=100 * float(class_mean))


@METRICS.register_module()
class PartIoUMetric(BaseMetric):
    """``parts/instance_mIoU`` over all shapes, ``parts/class_mIoU`` over categories with shapes.

    A point gets the part with the highest score of those of its shape's category, which is known.
    The data set's ``metainfo['parts']`` has the parts of each category; with ``classes``, the names
    of the categories, there is also ``parts/IoU_NAME``, the mean over the shapes of each.
    """

    default_prefix = 'parts'

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        for shape in data_samples:
            category = int(shape['category'])
            parts = np.array(self.dataset_meta['parts'][category])
            predicted = parts[shape['scores'][:, parts].argmax(1).cpu().numpy()]
            self.results.append(
                (category, shape_iou(predicted, shape['parts'].cpu().numpy(), parts))
            )

    def compute_metrics(self, results: list[tuple[int, float]]) -> dict[str, float]:
        by_category = defaultdict(list)
        for category, iou in results:
            by_category[category].append(iou)
        instance = np.mean([iou for _, iou in results])
        means = {category: 100 * float(np.mean(x)) for category, x in sorted(by_category.items())}
        scores = dict(
            instance_mIoU=100 * float(instance), class_mIoU=float(np.mean([*means.values()]))
        )
        if names := self.dataset_meta.get('classes'):
            scores |= {f'IoU_{names[category]}': mean for category, mean in means.items()}
        return scores

import pytest
import torch

from projects.points.metrics import PartIoUMetric, ShapeAccuracyMetric


def evaluate(metric, shapes, **meta):
    metric.dataset_meta = meta
    metric.process({}, shapes)
    return metric.evaluate(len(shapes))


def test_parts():
    """Of two categories, with parts 0, 1 and 2, 3."""

    def shape(category, true, best, others=()):
        scores = torch.zeros(len(true), 4)
        scores[range(len(true)), best] = 1
        for point, part in others:
            scores[point, part] = 2  # a part of the other category does not count
        return dict(category=torch.tensor(category), parts=torch.tensor(true), scores=scores)

    shapes = [
        shape(0, [0, 1], [0, 1], others=[(0, 3)]),  # 1
        shape(0, [0, 1], [0, 0]),  # (1/2 + 0) / 2
        shape(1, [2, 2], [2, 2]),  # 1, though part 3 is absent
        shape(1, [3, 3], [2, 2]),  # 0
        shape(1, [3, 3], [3, 2]),  # (0 + 1/2) / 2
    ]
    scores = evaluate(PartIoUMetric(), shapes, parts=((0, 1), (2, 3)), classes='AB')
    assert scores['parts/instance_mIoU'] == pytest.approx(100 * (1 + 0.25 + 1 + 0 + 0.25) / 5)
    assert scores['parts/class_mIoU'] == pytest.approx(100 * (1.25 / 2 + 1.25 / 3) / 2)
    assert scores['parts/IoU_A'] == pytest.approx(100 * 1.25 / 2)
    assert scores['parts/IoU_B'] == pytest.approx(100 * 1.25 / 3)


def test_classes():
    labels, predicted = [0, 0, 0, 2], [0, 0, 1, 1]
    shapes = [
        dict(label=torch.tensor(y), scores=torch.eye(4)[x])
        for y, x in zip(labels, predicted, strict=True)
    ]
    scores = evaluate(ShapeAccuracyMetric(), shapes)
    assert scores['accuracy/overall'] == 50
    assert scores['accuracy/class_mean'] == pytest.approx(100 * (2 / 3 + 0) / 2)

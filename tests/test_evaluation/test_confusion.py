import numpy as np

from mmbixt.evaluation import class_iou, confusion_matrix


def test_counts_by_hand():
    truth = np.array([[0, 0, 1], [1, 255, 2]])
    prediction = np.array([[0, 1, 1], [1, 0, 0]])
    confusion = confusion_matrix(truth, prediction, num_classes=4)
    expected = np.zeros((4, 4), int)
    expected[0, 0] = expected[0, 1] = expected[2, 0] = 1
    expected[1, 1] = 2
    np.testing.assert_array_equal(confusion, expected)
    iou = class_iou(confusion)
    np.testing.assert_allclose(iou[:3], [1 / 3, 2 / 3, 0])
    assert np.isnan(iou[3])  # absent from the truth


def test_random_maps_against_sets_of_pixels():
    rng = np.random.default_rng(0)
    truth, prediction = rng.integers(0, 5, (2, 40, 50))
    iou = class_iou(confusion_matrix(truth, prediction, 5))
    for k in range(5):
        both = np.sum((truth == k) & (prediction == k))
        either = np.sum((truth == k) | (prediction == k))
        assert np.isclose(iou[k], both / either)


def test_labels_of_eight_bits_do_not_overflow():
    labels = np.full((4, 4), 149, np.uint8)
    assert confusion_matrix(labels, labels, 150)[149, 149] == 16

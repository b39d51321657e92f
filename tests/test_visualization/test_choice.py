import numpy as np

from mmbixt.visualization.choice import worst_and_best, worst_images

SCORES = np.array([90.0, 60.0, 10.0, np.nan, 30.0])


def different(i):
    """Photographs."""
    return np.random.default_rng(i).integers(0, 256, (16, 16, 3), np.uint8)


def test_worst_and_best_images():
    assert worst_and_best(SCORES, 2, different) == ([2, 4], [0, 1])
    assert worst_and_best(SCORES, 3, different) == ([2, 4, 1], [0])
    assert worst_images(SCORES, 9, different) == [2, 4, 1, 0]


def test_frames_of_a_video_are_chosen_once():
    """Each image and the fourth after it look alike."""
    scores = np.array([90.0, 60, 10, 30, 91, 61, 11, 31])  # the worst: 2, 6, 3, 7, then 1, 5, 0, 4
    worst, best = worst_and_best(scores, 3, lambda i: different(i % 4))
    assert (worst, best) == ([2, 3, 1], [4, 5, 7])

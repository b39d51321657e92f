"""Label maps for tests of the boundary metrics, and the counts of their pixels."""

import numpy as np

from mmbixt.evaluation import image_sums

SIZES = ((20, 30), (7, 11), (33, 16), (1, 5), (20, 30))


def label_maps(sizes=SIZES, wrong=0.2):
    """(truth, prediction) by image: labels 0 to 2 in blocks, a tenth of the truth ignored (255).

    The truths are the same for every share of wrong pixels.
    """
    for seed, (height, width) in enumerate(sizes):
        rng = np.random.default_rng(seed)
        truth = rng.integers(0, 3, (height // 4 + 1, width // 4 + 1)).repeat(4, 0).repeat(4, 1)
        truth = truth[:height, :width]
        ignored = rng.random(truth.shape) < 0.1
        prediction = np.where(rng.random(truth.shape) < wrong, (truth + 1) % 3, truth)
        yield np.where(ignored, 255, truth), prediction


def stacked_sums(maps, **options):
    """Counts (N,4) of N images by name; class 3 occurs nowhere."""
    sums = [image_sums(truth, prediction, 4, **options) for truth, prediction in maps]
    return {name: np.stack([counts[name] for counts in sums]) for name in sums[0]}


def total(image_counts):
    """Counts (4,) of all images together."""
    return {name: counts.sum(0) for name, counts in image_counts.items()}

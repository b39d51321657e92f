"""What the boundary counts of an image cost: all classes at once, and class by class.

Class by class is how Boundary IoU was published: a mask is eroded for each class that is present,
in the truth and in the prediction. Both ways count the same pixels, which is checked, and take
turns, round after round, so that what else the machine does hits them alike. The prediction itself
takes its turn, too: the whole of a segmentor from an image of that size to its label map.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import cv2
import numpy as np
import torch
from mmengine.registry import MODELS, init_default_scope
from mmseg.structures import SegDataSample

from mmbixt.cli import read_config, run
from mmbixt.evaluation.boundary import RATIOS, WIDTHS, band_pixels, image_sums, ratio_pixels


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--shape', nargs=2, type=int, default=(512, 683), metavar=('H', 'W'))
    parser.add_argument('--present', type=int, default=40, help='classes in the image')
    parser.add_argument('--classes', type=int, default=150, help='classes of the data set')
    parser.add_argument(
        '--config',
        default='configs/bixt/semfpn_bixt_ti_ade20k.py',
        help='of mmseg, the segmentor (default: %(default)s)',
    )
    parser.add_argument('--rounds', type=int, default=15, help='turns of each way (default: 15)')
    return parser.parse_args()


def scene(height: int, width: int, present: int, seed: int = 0) -> np.ndarray:
    """A label map (H,W): each pixel has the class of the nearest of a few random points."""
    rng = np.random.default_rng(seed)
    points = rng.uniform((0, 0), (height, width), (3 * present, 2))
    rows, columns = np.mgrid[:height, :width]
    nearest, labels = np.full((height, width), np.inf), np.zeros((height, width), np.uint8)
    for i, (row, column) in enumerate(points):
        distance = (rows - row) ** 2 + (columns - column) ** 2
        labels[distance < nearest] = i % present
        nearest = np.minimum(nearest, distance)
    return labels


def inner_band(mask: np.ndarray, distance: int, border: int) -> np.ndarray:
    """A mask (H,W) less its erosion, outside the image being background (0) or not (1)."""
    padded = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=border)
    eroded = cv2.erode(padded, np.ones((3, 3), np.uint8), iterations=distance)
    return mask - eroded[1:-1, 1:-1]


def sums_class_by_class(
    truth: np.ndarray, prediction: np.ndarray, num_classes: int
) -> dict[str, np.ndarray]:
    """The counts of `image_sums` for maps without ignored pixels, one erosion for each mask."""
    present = np.flatnonzero(np.bincount(np.concatenate((truth, prediction), None)))
    masks = {k: ((truth == k).view(np.uint8), (prediction == k).view(np.uint8)) for k in present}
    places = {'all': np.ones(truth.shape, bool)}
    for width in WIDTHS:
        distance = band_pixels(width, truth.shape)
        bands = [inner_band(of_truth, distance, border=1) for of_truth, _ in masks.values()]
        name = f'band{width}px' if isinstance(width, int) else f'band{width}'
        places[name] = np.bitwise_or.reduce(bands).view(bool)
    sums = {}
    for name, place in places.items():
        t, p = truth[place], prediction[place]
        for what, labels in (('intersect', t[t == p]), ('predicted', p), ('true', t)):
            sums[f'{name}/{what}'] = np.bincount(labels, minlength=num_classes)
    for ratio in RATIOS:
        distance = ratio_pixels(ratio, truth.shape)
        intersect, union = np.zeros((2, num_classes), np.int64)
        for k, pair in masks.items():
            t, p = (inner_band(mask, distance, border=0) for mask in pair)
            intersect[k], union[k] = np.count_nonzero(t & p), np.count_nonzero(t | p)
        sums |= {f'boundary{ratio}/intersect': intersect, f'boundary{ratio}/union': union}
    return sums


def predictor(config: str, height: int, width: int) -> Callable[[], None]:
    """Predicts the label map of an image, with random weights."""
    cfg = read_config(config)
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model).eval()
    image = torch.randint(256, (3, height, width), dtype=torch.uint8)
    size = (height, width)
    sample = SegDataSample(metainfo=dict(ori_shape=size, img_shape=size, pad_shape=size))
    batch = dict(inputs=[image], data_samples=[sample])
    return torch.no_grad()(lambda: model.test_step(batch))


def main() -> None:
    args = parse_args()
    cv2.setNumThreads(1)
    predict = predictor(args.config, *args.shape)
    truth = scene(*args.shape, args.present)
    prediction = np.roll(truth, (2, 3), (0, 1))
    ways = {'all classes at once': image_sums, 'class by class': sums_class_by_class}
    seconds = {way: [] for way in (*ways, 'prediction')}
    for _ in range(1 + args.rounds):
        found = []
        for way, sums in ways.items():
            start = time.perf_counter()
            found.append(sums(truth, prediction, args.classes))
            seconds[way].append(time.perf_counter() - start)
        start = time.perf_counter()
        predict()
        seconds['prediction'].append(time.perf_counter() - start)
        assert found[0].keys() == found[1].keys()
        for name in found[0]:
            np.testing.assert_array_equal(found[0][name], found[1][name], err_msg=name)
    print(f'{args.shape[0]} x {args.shape[1]} pixels, {len(np.unique(truth))} classes present,')
    print(f'{len(WIDTHS)} bands and Boundary IoU at {len(RATIOS)} ratios, one thread;')
    print(f'prediction: {args.config}, {torch.get_num_threads()} threads\n')
    once = seconds['all classes at once'][1:]
    print(f'{"":20}{"":>11}{"all at once / this":>20}')
    for way, each in seconds.items():
        ratio = median(a / b for a, b in zip(once, each[1:], strict=True))
        print(f'{way:20}{1000 * median(each[1:]):8.1f} ms{ratio:20.3f}')


if __name__ == '__main__':
    run(main)

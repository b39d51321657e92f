import sys
from datetime import timedelta

import cv2
import numpy as np
import pytest
import torch
import torch.distributed as dist
from documents import shown
from helpers import python
from label_maps import label_maps, stacked_sums
from torch.multiprocessing import start_processes

from mmbixt import evaluation
from mmbixt.evaluation import class_scores, scores

BATCHES = ((20, 30), (20, 30)), ((7, 11),), ((33, 16), (33, 16))  # sizes of images


@pytest.fixture(autouse=True)
def _torchmetrics(request):
    if request.function is not test_torchmetrics_is_named_if_missing:
        pytest.importorskip('torchmetrics')


def batches():
    for sizes in BATCHES:
        truths, predictions = zip(*label_maps(sizes), strict=True)
        yield torch.tensor(np.stack(predictions)), torch.tensor(np.stack(truths))


def expected(per_class=False, **options):
    """The scores of all images, from their counts as the tool for folders adds them."""
    maps = [pair for sizes in BATCHES for pair in label_maps(sizes)]
    total = {name: counts.sum(0) for name, counts in stacked_sums(maps, **options).items()}
    return scores(total) | (class_scores(total) if per_class else {})


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize('given', ['labels', 'logits'])
def test_scores_are_those_of_the_tool_for_folders(given):
    options = dict(per_class=True, widths=(2, 0.1), ratios=(0.1,), tolerances=(1,))
    metric = evaluation.BoundaryScores(4, **options)
    for predictions, truths in batches():
        if given == 'logits':
            predictions = torch.eye(4)[predictions].movedim(3, 1)
        one = metric(predictions, truths)  # the scores of this batch alone
    assert_same(metric.compute(), expected(**options))
    assert one['all/mIoU'] != metric.compute()['all/mIoU']
    metric.reset()
    assert metric.counts.sum() == 0


def test_a_shifted_mask():
    """A square of 20 x 20 pixels, by 2: inner bands of 3 pixels overlap in part."""
    truth = torch.zeros(1, 40, 40, dtype=torch.uint8)
    truth[:, 10:30, 10:30] = 1
    prediction = truth.roll(2, 2)
    truth[:, :, 35:] = 100  # ignored, and no boundary
    metric = evaluation.BoundaryScores(2, per_class=True, widths=(1, 3), ignore_index=100)
    metric.update(prediction, truth)
    found = metric.compute()
    assert found['all/IoU'][1] == pytest.approx(100 * 18 / 22)
    # of 256 pixels on each side of the outline within 3 pixels, 2 x 40 have another label
    inner, outer = 400 - 14**2, 26**2 - 400
    assert found['band3px/aAcc'] == pytest.approx(100 * (1 - 80 / (inner + outer)))
    assert metric.counts[metric.names.index('all/true')].tolist() == [40 * 35 - 400, 400]


@pytest.mark.parametrize(
    ('predicted', 'message'),
    [
        (torch.zeros(1, 5, 5), r'logits must be \(B,3,H,W\), got \(1, 5, 5\)'),
        (torch.zeros(1, 2, 5, 5), r'logits must be \(B,3,H,W\), got \(1, 2, 5, 5\)'),
        (torch.zeros(1, 5, 4, dtype=torch.int64), r'of one size, got \(5, 5\) and \(5, 4\)'),
        (torch.full((1, 5, 5), 3), 'the prediction has label 3'),
    ],
)
def test_what_fits_no_label_map(predicted, message):
    with pytest.raises(ValueError, match=message):
        evaluation.BoundaryScores(3).update(predicted, torch.zeros(1, 5, 5, dtype=torch.int64))


def share_of(rank, folder):
    """In one of two processes: every second batch."""
    meeting = f'file://{folder}/rendezvous'
    dist.init_process_group('gloo', meeting, rank=rank, world_size=2, timeout=timedelta(minutes=1))
    metric = evaluation.BoundaryScores(4)
    for predictions, truths in list(batches())[rank::2]:
        metric.update(predictions, truths)
    torch.save(metric.compute(), folder / f'{rank}.pth')
    dist.destroy_process_group()


def test_two_processes_give_the_scores_of_one(tmp_path):
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)  # OpenCV's threads do not survive a fork; a fork saves two slow imports
    try:
        start_processes(share_of, (tmp_path,), nprocs=2, start_method='fork')
    finally:
        cv2.setNumThreads(threads)
    for rank in range(2):
        assert_same(torch.load(tmp_path / f'{rank}.pth'), expected())


def test_torchmetrics_is_named_if_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, 'torchmetrics', None)
    monkeypatch.delitem(sys.modules, 'mmbixt.evaluation.boundary_scores', raising=False)
    monkeypatch.delattr('mmbixt.evaluation.boundary_scores', raising=False)
    with pytest.raises(ImportError, match=r'BoundaryScores needs torchmetrics, .*pip install'):
        _ = evaluation.BoundaryScores


def test_nothing_of_openmmlab_is_needed():
    names = ('mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain')
    code = f'import sys; sys.modules |= dict.fromkeys({names})\n'
    python('-c', f'{code}from mmbixt.evaluation import BoundaryScores; BoundaryScores(2)')


def test_the_page():
    (code,) = shown('torchmetrics')
    logits, truths = torch.randn(2, 3, 40, 50), torch.randint(3, (2, 40, 50))
    found = dict(model=lambda images: logits, val_loader=[(None, truths)])
    exec(code.replace('num_classes=19', 'num_classes=3'), found)
    assert found['scores']['all/mIoU'] > 0

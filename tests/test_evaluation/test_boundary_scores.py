import numpy as np
import pytest
import torch
from documents import shown
from label_maps import label_maps, stacked_sums, total
from running import in_two_processes

from mmbixt import evaluation
from mmbixt.evaluation import class_scores, scores

BATCHES = ((20, 30), (20, 30)), ((7, 11),), ((33, 16), (33, 16))  # sizes of images


def batches():
    for sizes in BATCHES:
        truths, predictions = zip(*label_maps(sizes), strict=True)
        yield torch.tensor(np.stack(predictions)), torch.tensor(np.stack(truths))


def expected(per_class=False, **options):
    """The scores of all images, from their counts as the tool for folders adds them."""
    maps = [pair for sizes in BATCHES for pair in label_maps(sizes)]
    sums = total(stacked_sums(maps, **options))
    return scores(sums) | (class_scores(sums) if per_class else {})


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize('given', ['labels', 'logits'])
def test_scores_are_those_of_the_tool_for_folders(given):
    options = dict(per_class=True, widths=(2, 0.1), ratios=(0.1,), tolerances=(1,))
    metric = evaluation.BoundaryScores(4, **options, ignore_index=100)
    for predictions, truths in batches():
        if given == 'logits':
            predictions = torch.eye(4)[predictions].movedim(3, 1)
        metric(predictions, truths.where(truths != 255, 100))
    assert_same(metric.compute(), expected(**options))


def share_of(rank, folder):
    """In one of two processes: every second batch."""
    metric = evaluation.BoundaryScores(4)
    for predictions, truths in list(batches())[rank::2]:
        metric.update(predictions, truths)
    torch.save(metric.compute(), folder / f'{rank}.pth')


def test_two_processes_give_the_scores_of_one(tmp_path):
    in_two_processes(share_of, tmp_path)
    for rank in range(2):
        assert_same(torch.load(tmp_path / f'{rank}.pth'), expected())


def test_the_page():
    (code,) = shown('torchmetrics')
    logits, truths = torch.randn(2, 3, 40, 50), torch.randint(3, (2, 40, 50))
    found = dict(model=lambda images: logits, val_loader=[(None, truths)])
    exec(code.replace('num_classes=19', 'num_classes=3'), found)
    assert found['scores']['all/mIoU'] > 0

import pickle

import numpy as np
import pytest
import torch
from label_maps import label_maps, stacked_sums, total
from mmengine.structures import BaseDataElement, PixelData
from running import in_two_processes

from mmbixt.evaluation import BoundaryIoUMetric, scores
from mmbixt.evaluation.sums import read_sums

CLASSES = ('sky', 'sea', 'a very long name', 'sand')
SIZES = ((20, 30), (7, 11), (300, 320))  # the last one has more than 2^16 pixels


def make_samples():
    samples = []
    for i, (truth, prediction) in enumerate(label_maps(SIZES)):
        sample = BaseDataElement(metainfo=dict(img_path=f'data/image_{i}.jpg'))
        sample.gt_sem_seg = PixelData(data=torch.from_numpy(truth)[None].to(torch.uint8))
        sample.pred_sem_seg = PixelData(data=torch.from_numpy(prediction)[None])
        samples.append(sample)
    return samples


def evaluate(samples, size=None, **options):
    metric = BoundaryIoUMetric(**options)
    metric.dataset_meta = dict(classes=CLASSES)
    metric.process({}, [sample.to_dict() for sample in samples])
    return metric.evaluate(size or len(samples))


def evaluate_share(rank, folder, samples):
    """Evaluate, in one of two processes, its share of the samples."""
    # as mmengine's sampler: every second sample, padded from the beginning to an equal number
    share = (samples + samples)[rank::2][: -(-len(samples) // 2)]
    files = dict(sums_file=f'{folder}/sums.npz', collect_dir=f'{folder}/exchange')
    (folder / f'{rank}.pkl').write_bytes(pickle.dumps(evaluate(share, len(samples), **files)))


def test_two_processes_give_the_scores_of_one(tmp_path):
    samples = make_samples()
    in_two_processes(evaluate_share, tmp_path, samples)
    first, second = (pickle.loads((tmp_path / f'{rank}.pkl').read_bytes()) for rank in range(2))
    assert first == second == pytest.approx(evaluate(samples))
    assert read_sums(tmp_path / 'sums.npz').images == [f'image_{i}.jpg' for i in range(3)]


def test_scores_are_of_the_summed_counts(tmp_path):
    path = tmp_path / 'new' / 'counts.npz'
    found = evaluate(make_samples(), all_scores=True, tolerances=(3,), sums_file=str(path))
    image_counts = stacked_sums(label_maps(SIZES), tolerances=(3,))
    assert found == pytest.approx(scores(total(image_counts)))
    assert {'all/mIoU', 'band3px/gap', 'boundary0.005/mIoU', 'boundaryF3px/mF'} <= found.keys()
    line = {'all/mIoU', 'band3px/mIoU', 'band3px/gap', 'boundary0.02/mIoU'}
    assert evaluate(make_samples()) == pytest.approx({name: found[name] for name in line})
    written = read_sums(path)
    assert written.images == [f'image_{i}.jpg' for i in range(3)]
    assert written.classes == list(CLASSES)
    np.testing.assert_equal(written.counts, image_counts)

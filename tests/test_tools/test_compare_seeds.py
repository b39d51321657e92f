import numpy as np

from mmbixt.evaluation import scores
from mmbixt.evaluation.boundary import image_sums
from mmbixt.evaluation.sums import write_sums

TOOL = 'analysis/compare_seeds.py'
CLASSES = ['sky', 'sea', 'sand']


def write_run(path, seed, wrong):
    """Predictions of three images, a share of whose pixels is of a random class; their scores."""
    truth = np.repeat(np.arange(3, dtype=np.uint8), 16)[:, None] * np.ones((1, 40), np.uint8)
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(3):
        guess = rng.integers(0, 3, truth.shape)
        images.append(image_sums(truth, np.where(rng.random(truth.shape) < wrong, guess, truth), 3))
    of_images = {name: np.stack([counts[name] for counts in images]) for name in images[0]}
    write_sums(path / 'boundary.npz', ['0.jpg', '1.jpg', '2.jpg'], CLASSES, of_images)
    return scores({name: counts.sum(0) for name, counts in of_images.items()})


def test_means_spreads_and_differences_by_seed(tmp_path, within):
    runs = {model: [tmp_path / f'{model}_{seed}' for seed in range(3)] for model in 'ab'}
    found = {
        model: [write_run(path, i, wrong) for i, path in enumerate(runs[model])]
        for model, wrong in (('a', 0.6), ('b', 0.3))
    }
    out = within(TOOL, '--a', *runs['a'], '--b', *runs['b']).stdout
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert {'all/mIoU', 'band3px/mIoU', 'band3px/gap', 'boundary0.02/mIoU'} <= rows.keys()
    for name in ('all/mIoU', 'band0.02/gap'):
        a, b = (np.array([s[name] for s in found[model]]) for model in 'ab')
        expected = [f'{x:.2f}' for v in (a, b, b - a) for x in (v.mean(), v.std(ddof=1))]
        assert [x for x in rows[name][1:10] if x != '±'] == expected
        assert rows[name][10:] == [f'{x:+.2f}' for x in b - a]


def test_one_seed_has_no_spread_and_mistakes_are_explained(tmp_path, within):
    for model in 'ab':
        write_run(tmp_path / model, 0, 0.3)
    assert '±' not in within(TOOL, '--a', tmp_path / 'a', '--b', tmp_path / 'b').stdout
    for others, message in (
        ([tmp_path, tmp_path], 'one for each seed'),
        ([tmp_path / 'nowhere'], 'error: There is no file and no folder'),
    ):
        done = within(TOOL, '--a', tmp_path / 'a', '--b', *others)
        assert done.returncode != 0
        assert message in done.stderr

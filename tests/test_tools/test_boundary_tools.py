import json
import re
from functools import partial

import cv2
import numpy as np
import pytest
from label_maps import label_maps, stacked_sums, total
from PIL import Image
from test_report.runs import train_record, write_log

from mmbixt.evaluation import class_scores, scores
from mmbixt.evaluation.sums import ImageSums, read_sums, write_sums

CLASSES = ['sky', 'sea', 'a name that is much longer than others', 'sand']
SIZES = [(30, 30)] + 11 * [(45, 60)]


@pytest.fixture
def folders(tmp_path):
    """Files in the format of ADE20K: 0 is ignored, and classes start at 1."""
    for name in ('truth', 'good'):
        (tmp_path / name).mkdir()
    for i, (truth, good) in enumerate(label_maps(SIZES, 0.1)):
        cv2.imwrite(
            f'{tmp_path}/truth/{i:02}_gt.png', np.where(truth == 255, 0, truth + 1).astype(np.uint8)
        )
        with_palette = Image.fromarray(good.astype(np.uint8), 'P')
        with_palette.putpalette([*range(255, -1, -1)] * 3)
        with_palette.save(f'{tmp_path}/good/{i:02}.png')
    (tmp_path / 'classes.txt').write_text('\n'.join(CLASSES))
    return tmp_path


def sums(wrong, **options):
    """Of predictions with a share of wrong pixels."""
    return stacked_sums(label_maps(SIZES, wrong), **options)


@pytest.fixture
def evaluate(folders, within):
    """Runs boundary_eval.py on the good predictions."""
    where = folders / 'good', folders / 'truth', '--gt-suffix', '_gt.png'
    return partial(within, 'analysis/boundary_eval.py', *where)


def test_scores_of_folders_are_those_of_the_label_maps(folders, evaluate):
    done = evaluate(
        '--classes', folders / 'classes.txt', '--reduce-zero-label', '--widths', 2, 0.1,
        '--ratios', 0.1, '--tolerances', 1, '--per-class', '--jobs', 2,
        '--json', folders / 'new/scores.json', '--sums', folders / 'new/boundary.npz',
    )  # fmt: skip
    image_counts = sums(0.1, widths=(2, 0.1), ratios=(0.1,), tolerances=(1,))
    counted = read_sums(folders / 'new/boundary.npz')
    assert counted.images == [f'{i:02}' for i in range(12)]
    assert counted.classes == CLASSES
    np.testing.assert_equal(counted.counts, image_counts)
    found, by_class = scores(total(image_counts)), class_scores(total(image_counts))
    written = json.loads((folders / 'new/scores.json').read_text())
    assert written['scores'] == pytest.approx(found)
    assert written['class_scores'].keys() == by_class.keys()
    assert written['class_scores']['all/IoU'] == [*by_class['all/IoU'][:3], None]
    assert done.stdout.startswith('12 images, 4 classes, of which 3 occur; percentages')
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    for where in ('all', 'band2px', 'band0.1'):
        texts = [f'{found[f"{where}/{name}"]:.2f}' for name in ('mIoU', 'mAcc', 'aAcc')]
        assert lines[where][:3] == texts
    assert lines['boundary0.1'] == [f'{found["boundary0.1/mIoU"]:.2f}']
    assert lines['boundaryF1px'] == [f'{found["boundaryF1px/mF"]:.2f}']
    columns = [name for name in by_class if not name.endswith('Acc')]
    assert lines['sky'] == [f'{by_class[name][0]:.2f}' for name in columns]


def test_pictures_of_the_worst_images(folders, evaluate):
    (folders / 'images').mkdir()
    for i, (height, width) in enumerate(SIZES):
        image = np.random.default_rng(i).integers(0, 256, (height, width, 3), np.uint8)
        cv2.imwrite(f'{folders}/images/{i:02}.jpg', image)
    options = '--classes', folders / 'classes.txt', '--reduce-zero-label', '--worst', 2
    done = evaluate(*options, '--images', folders / 'images', '--out-dir', folders / 'out')
    means = np.nanmean(class_scores(sums(0.1))['band3px/IoU'], 1)
    worst = [f'{folders}/out/{i:02}.png  mIoU {means[i]:.1f}' for i in np.argsort(means)[:2]]
    assert done.stdout.splitlines()[-2:] == [f'  1. {worst[0]}', f'  2. {worst[1]}']
    assert len([*(folders / 'out').iterdir()]) == 2
    assert min(cv2.imread(worst[0].split()[0]).shape[:2]) > 500


def test_interval_of_a_better_run_is_above_0(tmp_path, within):
    """With the names of images of the tool and of the metric."""
    names, plot = [f'image_{i}' for i in range(12)], tmp_path / 'new/plot.png'
    write_sums(tmp_path / 'bad/boundary.npz', ImageSums(names, CLASSES, sums(0.3)))
    files = [f'{name}.jpg' for name in names]
    write_sums(tmp_path / 'good/test/1/boundary.npz', ImageSums(files, CLASSES, sums(0.1)))
    runs = tmp_path / 'bad', tmp_path / 'good'
    done = within('analysis/compare.py', *runs, '--per-class', '--plot', plot)
    lines = [re.split(r'[\s\[\],]+', x.strip(' ]')) for x in done.stdout.splitlines()]
    found = {first: rest for first, *rest in lines}
    totals = total(sums(0.3)), total(sums(0.1))
    a, b = map(scores, totals)
    for name in a:
        if name.endswith('/mIoU'):
            expected = [f'{a[name]:.2f}', f'{b[name]:.2f}', f'{b[name] - a[name]:+.2f}']
            assert found[name][:3] == expected
            low, high = map(float, found[name][3:5])
            assert 0 < low < b[name] - a[name] < high
    before, after = (class_scores(x)['band3px/IoU'] for x in totals)
    shown = [name for name in found if name in ('sky', 'sea', 'a')]
    assert shown == [CLASSES[k].split()[0] for k in np.argsort(before - after)[:3]]
    assert plot.stat().st_size > 10_000


def test_means_spreads_and_differences_by_seed(tmp_path, within):
    """Two models with three seeds each; the last run counted fewer bands."""
    runs, found = {'a': [], 'b': []}, {'a': [], 'b': []}
    for model, wrong in zip('ababab', (0.6, 0.3, 0.5, 0.2, 0.4, 0.25), strict=True):
        counts = stacked_sums(label_maps(wrong=wrong))
        runs[model].append(tmp_path / f'{model}_{wrong}')
        found[model].append(scores(total(counts))['band3px/gap'])
        if wrong == 0.25:
            counts = {name: counts[name] for name in counts if name.startswith(('all', 'band3px'))}
        write_sums(runs[model][-1] / 'boundary.npz', ImageSums('vwxyz', CLASSES, counts))
    done = within('analysis/compare.py', '--a', *runs['a'], '--b', *runs['b'])
    (line,) = (line for line in done.stdout.splitlines() if line.startswith('band3px/gap'))
    a, b = map(np.array, found.values())
    expected = [f'{x.mean():.2f} ± {x.std(ddof=1):.2f}' for x in (a, b, b - a)]
    expected += [f'{x:+.2f}' for x in b - a]
    assert line.split()[1:] == ' '.join(expected).split()
    assert 'band0.02/gap' not in done.stdout


def test_epochs_until_the_best_score_of_the_other_run(within, tmp_path):
    """Of two iterations each; the second run was stopped in its third epoch, and resumed."""

    def epoch(number, score):
        train = [train_record(step, epoch=number) for step in (2 * number - 1, 2 * number)]
        return [*train, {'accuracy/top1': score, 'step': number}]

    scores = enumerate((float('nan'), 60, 70, 65), 1)
    first = [record for number, score in scores for record in epoch(number, score)]
    write_log(tmp_path / 'a', '20250101_100000', first)
    killed = [*epoch(1, 55), *epoch(2, 71), train_record(5, epoch=3)]
    write_log(tmp_path / 'b', '20250101_100000', killed)
    write_log(tmp_path / 'b', '20250102_100000', [*epoch(3, 72), *epoch(4, 71.5)])
    done = within('analysis/compare.py', 'a', 'b', '--reach', 'accuracy/top1', cwd=tmp_path)
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert lines == [['a', '70.00', '3', 'never', 'of', '4'], ['b', '72.00', '3', '2', 'of', '4']]


@pytest.mark.usefixtures('in_project')
def test_predictions_and_counts_with_the_boundary_metric_alone(within):
    """The config has it instead of mmseg's metric, with a file for the counts; --boundary adds no
    second one."""
    options = ['--boundary', '--out', 'maps', '--work-dir', 'run']
    done = within('test.py', 'mine.py', 'mine.pth', *options)
    assert all(f' {name}: ' in done.said for name in ('all/mIoU', 'band3px/mIoU'))
    assert 'band1px/mIoU: ' not in done.said
    counted = read_sums('counts.npz')
    assert counted.images == [f'scene_{i}.jpg' for i in range(5)]
    # numbered from 1, as in the files of mmseg's metric
    labels = [cv2.imread(f'maps/scene_{i}.png', cv2.IMREAD_UNCHANGED) - 1 for i in range(5)]
    predicted = [np.bincount(one.ravel(), minlength=3) for one in labels]
    np.testing.assert_array_equal(counted.counts['all/predicted'], predicted)

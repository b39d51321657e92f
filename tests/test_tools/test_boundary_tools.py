import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from label_maps import label_maps, stacked_sums
from PIL import Image

from mmbixt.check.metrics import metric_problems
from mmbixt.evaluation import BoundaryIoUMetric, class_scores, scores
from mmbixt.evaluation.sums import read_sums, write_sums

CLASSES = ['sky', 'sea', 'a name that is much longer than others', 'sand']
TESTS = Path(__file__).parent
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


def good_sums(**options):
    return stacked_sums(label_maps(SIZES, 0.1), **options)


def bad_sums():
    return stacked_sums(label_maps(SIZES, 0.3))


def total(image_counts):
    return {name: counts.sum(0) for name, counts in image_counts.items()}


@pytest.fixture
def evaluate(folders, within):
    """Runs boundary_eval.py on the good predictions."""
    where = folders / 'good', folders / 'truth', '--gt-suffix', '_gt.png'
    before = signal.getsignal(signal.SIGTERM)
    yield partial(within, 'analysis/boundary_eval.py', *where)
    signal.signal(signal.SIGTERM, before)


def test_scores_of_folders_are_those_of_the_label_maps(folders, evaluate):
    done = evaluate(
        '--classes', folders / 'classes.txt', '--reduce-zero-label', '--widths', 2, 0.1,
        '--ratios', 0.1, '--tolerances', 1, '--per-class', '--jobs', 2,
        '--json', folders / 'new/scores.json', '--sums', folders / 'new/boundary.npz',
    )  # fmt: skip
    image_counts = good_sums(widths=(2, 0.1), ratios=(0.1,), tolerances=(1,))
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
    text = f'{found["boundary0.1/mIoU"]:.2f} 0.1: 8 px at 45 x 60'  # 75 pixels across
    assert ' '.join(lines['boundary0.1']) == text
    assert lines['boundaryF1px'] == [f'{found["boundaryF1px/mF"]:.2f}']
    columns = [name for name in by_class if not name.endswith('Acc')]
    assert lines['sky'] == [f'{by_class[name][0]:.2f}' for name in columns]


def test_shifted_labels_are_warned_of(folders, evaluate):
    for path in (folders / 'good').glob('*.png'):
        cv2.imwrite(str(path), 1 + np.array(Image.open(path)))
    done = evaluate('--num-classes', 6, '--reduce-zero-label')
    assert 'with 1 subtracted from the predictions' in done.stderr
    done = evaluate('--num-classes', 6, '--reduce-zero-label', '--pred-reduce-zero-label')
    assert 'warning: ' not in done.stderr


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--num-classes', 4, '--ratios', 3], '--ratios are fractions of the diagonal'),
        (['--num-classes', 4, '--sums', f'{__file__}/new/x.npz'], 'is a file'),
        (['--num-classes', 4, '--worst', 3], '--worst N needs --images'),
        (['--num-classes', 256], '255 (by default 255) is the label of one of the 256'),
        (['--num-classes', 3], 'the truth has label 3, but with 3 classes'),
    ],
)
def test_wrong_arguments(arguments, message, evaluate):
    done = evaluate(*arguments, fails=True)
    assert message in done.stderr
    assert done.stdout == ''


def test_pictures_of_the_worst_images(folders, evaluate):
    (folders / 'images').mkdir()
    for i, (height, width) in enumerate(SIZES):
        image = np.random.default_rng(i).integers(0, 256, (height, width, 3), np.uint8)
        cv2.imwrite(f'{folders}/images/{i:02}.jpg', image)
    options = '--classes', folders / 'classes.txt', '--reduce-zero-label', '--worst', 2
    options += '--images', folders / 'images', '--out-dir', folders / 'out'
    done = evaluate(*options)
    found = class_scores(good_sums())['band3px/IoU']
    worst = np.argsort(np.nanmean(found, 1))[:2]
    *_, first, second = done.stdout.splitlines()
    assert f'1. {worst[0]:02}  mIoU ' in first
    assert f'2. {worst[1]:02}  mIoU ' in second
    assert sorted(path.name for path in (folders / 'out').iterdir()) == sorted(
        f'{i:02}.png' for i in worst
    )
    assert min(cv2.imread(f'{folders}/out/{worst[0]:02}.png').shape[:2]) > 500
    error = lambda: evaluate(*options, fails=True).stderr  # noqa: E731
    (folders / f'images/{worst[0]:02}.jpg').unlink()
    assert 'images has no image for 1 of 12 truths. There should be' in error()
    cv2.imwrite(f'{folders}/images/{worst[0]:02}.jpg', np.zeros((9, 9, 3), np.uint8))
    assert f'{worst[0]:02}.jpg: the image must be (' in error()


@pytest.fixture
def long_evaluation(folders):
    """boundary_eval.py in its own process, with two worker processes."""
    labels = np.random.default_rng(0).integers(0, 4, (100, 125), np.uint8).repeat(8, 0).repeat(8, 1)
    for folder in ('long/p', 'long/g'):
        (folders / folder).mkdir(parents=True)
        cv2.imwrite(f'{folders}/{folder}/0.png', labels)
        for i in range(1, 400):
            os.link(f'{folders}/{folder}/0.png', f'{folders}/{folder}/{i}.png')
    command = [sys.executable, TESTS.parents[1] / 'tools/analysis/boundary_eval.py']
    command += [folders / 'long/p', folders / 'long/g', '--num-classes', 4, '--tolerances', 1]
    command += ['--jobs', 2, '--json', folders / 'long/scores.json']
    with (folders / 'stderr.txt').open('w') as printed:  # a pipe would wait for all processes
        started = subprocess.Popen(
            list(map(str, command)),
            stderr=printed,
            start_new_session=True,
            # background processes of a shell ignore SIGINT, and so do their children
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
    children = Path(f'/proc/{started.pid}/task/{started.pid}/children')
    while len(workers := children.read_text().split()) < 2:
        assert started.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)  # until they work
    yield started, [int(worker) for worker in workers]
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def running(process):
    """Whether a process has not ended; zombies have."""
    try:
        state = Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in 'ZX'


@pytest.mark.skipif(sys.platform != 'linux', reason='looks for processes in /proc')
@pytest.mark.parametrize(
    ('number', 'whom', 'code', 'message'),
    [
        (signal.SIGINT, 'all', 130, 'Stopped.'),  # Ctrl-C in a terminal
        (signal.SIGTERM, 'first', 143, 'Stopped.'),
        (signal.SIGKILL, 'first', -9, ''),
        (signal.SIGKILL, 'worker', 1, 'Out of memory? Try fewer --jobs (now 2).'),
    ],
)
def test_no_process_remains(number, whom, code, message, long_evaluation, folders):
    started, workers = long_evaluation
    if whom == 'all':
        os.killpg(started.pid, number)
    else:
        os.kill(started.pid if whom == 'first' else workers[0], number)
    assert started.wait(timeout=20) == code
    printed = (folders / 'stderr.txt').read_text()
    assert printed.rpartition('\r')[2].strip().endswith(message)
    assert 'Traceback' not in printed
    assert not (folders / 'long/scores.json').exists()
    end = time.monotonic() + 10
    while any(map(running, workers)):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def runs(tmp_path):
    """Counts of a bad and of a good run, with the names of images of the tool and of the metric."""
    names = [f'image_{i}' for i in range(12)]
    write_sums(tmp_path / 'bad/boundary.npz', names, CLASSES, bad_sums())
    files = [f'{name}.jpg' for name in names]
    write_sums(tmp_path / 'good/test/1/boundary.npz', files, CLASSES, good_sums())
    return tmp_path / 'bad', tmp_path / 'good'


def rows(text):
    """Cells of each line, by the first cell."""
    cells = [re.split(r'[\s\[\],]+', line.strip(' ]')) for line in text.splitlines()]
    return {first: rest for first, *rest in cells}


def test_interval_of_a_better_run_is_above_0(runs, tmp_path, within):
    plot = tmp_path / 'new/plot.png'
    done = within('analysis/compare.py', *runs, '--per-class', '--plot', plot)
    found = rows(done.stdout)
    totals = total(bad_sums()), total(good_sums())
    a, b = map(scores, totals)
    for name in a:
        if name.endswith('/mIoU'):
            expected = [f'{a[name]:.2f}', f'{b[name]:.2f}', f'{b[name] - a[name]:+.2f}']
            assert found[name][:3] == expected
            low, high = map(float, found[name][3:5])
            assert 0 < low < b[name] - a[name] < high
    before, after = (class_scores(sums)['band3px/IoU'] for sums in totals)
    shown = [name for name in found if name in ('sky', 'sea', 'a')]
    assert shown == [CLASSES[k].split()[0] for k in np.argsort(before - after)[:3]]
    assert plot.stat().st_size > 10_000


def test_means_spreads_and_differences_by_seed(tmp_path, within):
    """Two models with three seeds each."""
    runs, found = {'a': [], 'b': []}, {'a': [], 'b': []}
    for model, wrong in zip('ababab', (0.6, 0.3, 0.5, 0.2, 0.4, 0.25), strict=True):
        counts = stacked_sums(label_maps(wrong=wrong))
        runs[model].append(tmp_path / f'{model}_{wrong}')
        found[model].append(scores(total(counts))['band0.02/gap'])
        write_sums(runs[model][-1] / 'boundary.npz', 'vwxyz', CLASSES, counts)
    done = within('analysis/compare_seeds.py', '--a', *runs['a'], '--b', *runs['b'])
    (line,) = (line for line in done.stdout.splitlines() if line.startswith('band0.02/gap'))
    a, b = map(np.array, found.values())
    expected = [f'{x.mean():.2f} ± {x.std(ddof=1):.2f}' for x in (a, b, b - a)]
    expected += [f'{x:+.2f}' for x in b - a]
    assert line.split()[1:] == ' '.join(expected).split()
    # one seed has no spread
    done = within('analysis/compare_seeds.py', '--a', runs['a'][0], '--b', runs['b'][0])
    assert '±' not in done.stdout
    wrong = {
        'one for each seed': runs['b'],
        'There is no folder': ['nowhere'],
        'a_0.6 is given twice': [runs['a'][0]],
    }
    shutil.copytree(runs['a'][0], tmp_path / 'copy')
    few = {name: counts[name] for name in counts if name.startswith(('all', 'band3px'))}
    write_sums(tmp_path / 'few.npz', 'vwxyz', CLASSES, few)
    arguments = '--a', runs['a'][0], tmp_path / 'copy', '--b', runs['b'][0], tmp_path / 'few.npz'
    done = within('analysis/compare_seeds.py', *arguments)
    assert 'copy have the same counts. Is one a copy' in done.stdout
    assert 'band3px/gap' in done.stdout
    assert 'band0.02/gap' not in done.stdout
    for message, others in wrong.items():
        arguments = '--a', runs['a'][0], '--b', *others
        assert message in within('analysis/compare_seeds.py', *arguments, fails=True).stderr


def test_runs_that_cannot_be_compared(runs, tmp_path, within):
    def error(*arguments):
        done = within('analysis/compare.py', *arguments, fails=True)
        assert done.stdout == ''
        return done.stderr

    (tmp_path / 'empty').mkdir()
    assert 'no boundary.npz in' in error(runs[0], tmp_path / 'empty')
    write_sums(tmp_path / 'other.npz', [f'{i}' for i in range(12)], CLASSES, good_sums())
    assert '12 and 12 images' in error(runs[0], tmp_path / 'other.npz')
    assert 'the runs have all, band1px, band3px' in error(*runs, '--per-class', 'band7px')


@pytest.mark.usefixtures('in_project')
def test_predictions_and_counts_with_the_boundary_metric_alone(within):
    """The config has it instead of mmseg's metric, with a file for the counts; --boundary adds no
    second one."""
    options = ['--boundary', '--out', 'maps', '--work-dir', 'run']
    done = within('test.py', 'mine.py', 'mine.pth', *options)
    assert 'Boundary (band3px)' in done.said
    counted = read_sums('counts.npz')
    assert counted.images == [f'scene_{i}.jpg' for i in range(5)]
    # numbered from 1, as in the files of mmseg's metric
    labels = [cv2.imread(f'maps/scene_{i}.png', cv2.IMREAD_UNCHANGED) - 1 for i in range(5)]
    predicted = [np.bincount(one.ravel(), minlength=3) for one in labels]
    np.testing.assert_array_equal(counted.counts['all/predicted'], predicted)


@pytest.mark.parametrize(
    ('scope', 'metric', 'right'),
    [
        ('mmdet', BoundaryIoUMetric, 'mmbixt.BoundaryCocoMetric'),
        ('mmdet', 'mmseg.IoUMetric', 'CocoMetric'),
        ('mmdet', 'mmdet.IoUMetric', None),
        ('mmseg', 'mmdet.CocoMetric', 'IoUMetric'),
        ('mine', 'mmbixt.BoundaryIoUMetric', None),
    ],
)
def test_right_metric_is_named(scope, metric, right):
    for evaluator in (dict(type=metric), [dict(type=metric)], dict(metrics=[dict(type=metric)])):
        cfg = dict(default_scope=scope, val_evaluator=evaluator, test_evaluator=dict(type='Other'))
        assert not [*metric_problems(cfg, ('test',))]
        problems = [*metric_problems(cfg, ('train', 'val', 'test'))]
        assert len(problems) == (right is not None)
        assert all(f'. Use {right}' in problem for problem in problems)

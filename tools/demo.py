"""The main job on generated scenes: train, evaluate, look. What `make demo` runs.

Commands that could be typed by hand (they are printed), then pictures and tables of what came out
of them.
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope

from mmbixt.datasets import write_sample_data
from mmbixt.datasets.classes import sample_palette
from mmbixt.datasets.sample_config import use_sample_data
from mmbixt.evaluation import class_iou, confusion_matrix
from mmbixt.visualization.segmentation import comparison_figure, learning_curve, read_scalars

TOOLS = Path(__file__).resolve().parent
CONFIG = TOOLS.parent / 'configs/bixt/semfpn_bixt_ti_ade20k.py'
SCENES = 6  # shown side by side with their truth
# of a tool's output: what the sample changes, each step with its ETA, where things are saved
PROGRESS = re.compile(r'^--sample|^  \w+: |Iter\(|saved to|^predicting|^drawing|^report: ')
# of boundary_eval.py's, all behind its progress bar
TABLE = re.compile(r'^ +mIoU .*', re.MULTILINE | re.DOTALL)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', type=Path, default=Path('work_dirs/demo'), help='folder of it all')
    return parser.parse_args()


def run(*command: str | Path) -> str:
    """Run a tool; show its progress, and the last that it said if it fails. All that it said."""
    command = [str(part) for part in command]
    print(f'\n$ python {shlex.join(command)}', flush=True)
    said = []
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in process.stdout:
        said.append(line)
        if PROGRESS.search(line):
            print(line, end='', flush=True)
    if process.wait():
        sys.exit(''.join(said[-30:]) + 'demo: the command above failed; these are its last lines')
    return ''.join(said)


def load_scenes(cfg: Config, predictions: Path) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Image (H,W,3), truth and prediction (H,W) of every held-out scene, labels from 0."""
    init_default_scope(cfg.default_scope)
    scenes = []
    for sample in DATASETS.build(cfg.val_dataloader.dataset).load_data_list():
        image = cv2.imread(sample['img_path'])[..., ::-1]
        # ADE20K's files count from 1 and have 0 for unlabelled: 255 after this
        truth = cv2.imread(sample['seg_map_path'], cv2.IMREAD_GRAYSCALE) - np.uint8(1)
        name = Path(sample['img_path']).with_suffix('.png').name
        prediction = cv2.imread(str(predictions / name), cv2.IMREAD_GRAYSCALE) - np.uint8(1)
        scenes.append((image, truth, prediction))
    return scenes


def make_table(scenes: list[tuple[np.ndarray, ...]], classes: tuple[str, ...]) -> str:
    """IoU of each class that occurs, beside a predictor that knows only the commonest class."""
    total = sum(confusion_matrix(truth, guess, len(classes)) for _, truth, guess in scenes)
    majority = np.zeros_like(total)
    majority[:, total.sum(1).argmax()] = total.sum(1)
    ours, theirs = class_iou(total), class_iou(majority)
    row = '{:<22}{:>12}{:>18}'
    lines = [row.format('IoU (%)', 'this model', 'majority class'), '-' * 52]
    lines += [
        row.format(classes[k], f'{100 * ours[k]:.1f}', f'{100 * theirs[k]:.1f}')
        for k in np.argsort(-total.sum(1))
        if total[k].sum()
    ]
    means = [f'{100 * np.nanmean(iou):.1f}' for iou in (ours, theirs)]
    lines += ['-' * 52, row.format('mIoU, present classes', *means)]
    accuracies = [f'{100 * np.diag(c).sum() / c.sum():.1f}' for c in (total, majority)]
    lines += [row.format('pixels right', *accuracies)]
    return '\n'.join(lines)


def main() -> None:
    out = parse_args().out
    write_sample_data('data/sample')
    run(TOOLS / 'train.py', CONFIG, '--sample', '--work-dir', out / 'run')
    checkpoint = (out / 'run/last_checkpoint').read_text().strip()
    test = [TOOLS / 'test.py', CONFIG, checkpoint, '--sample', '--work-dir', out / 'test']
    run(*test, '--out', out / 'predictions')

    cfg = Config.fromfile(CONFIG)
    use_sample_data(cfg)
    dataset = cfg.val_dataloader.dataset
    truths = Path(dataset.data_root, dataset.data_prefix.seg_map_path)
    folders = [TOOLS / 'analysis/boundary_eval.py', out / 'predictions', truths]
    # ADE20K's own files count classes from 1
    labels = ['--classes', 'ade20k', '--reduce-zero-label', '--pred-reduce-zero-label']
    near_boundaries = TABLE.search(run(*folders, *labels)).group().rstrip()

    run(TOOLS / 'analysis/report.py', out / 'run', '--out', out / 'report.html')

    scenes = load_scenes(cfg, out / 'predictions')
    meta = DATASETS.build(cfg.val_dataloader.dataset).metainfo
    table = make_table(scenes, meta['classes'])
    table += f'\n\nAll pixels, and those near the boundaries of the truth (%)\n{near_boundaries}'
    (out / 'table.txt').write_text(table + '\n')
    step = max(1, len(scenes) // SCENES)
    shown = scenes[::step][:SCENES]
    title = f'{CONFIG.stem} --sample: held-out scenes'
    palette = sample_palette(meta['classes'], meta['palette'])
    comparison = comparison_figure(shown, meta['classes'], palette, title)
    comparison.savefig(out / 'predictions.png')
    latest = max((out / 'run').glob('*/vis_data/scalars.json'))
    curve = learning_curve(read_scalars(latest), 'mIoU', f'{CONFIG.stem} --sample')
    curve.savefig(out / 'learning_curve.png')

    print(f'\n{table}\n\nLook at')
    for name in ('report.html', 'predictions.png', 'learning_curve.png', 'table.txt'):
        print(f'  {out / name}')


if __name__ == '__main__':
    main()

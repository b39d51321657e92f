"""Train and evaluate on generated scenes, and draw the results (`make demo`).

All steps are commands of other tools, which are printed.
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from mmseg.datasets import BaseSegDataset

from mmbixt.sample.sample_config import use_sample_data
from mmbixt.sample.sample_data import write_sample_data
from mmbixt.visualization.palette import sample_palette

IGNORED = 255
TOOLS = Path(__file__).resolve().parent
CONFIG = TOOLS.parent / 'configs/bixt/semfpn_bixt_ti_ade20k.py'
SCENES = 6  # number of scenes in the picture
# lines of the tools' output to show: changes by --sample, each step, written files
PROGRESS = re.compile(r'^--sample|^  \w+: |Iter\(|saved to|^predicting|^drawing|^report: ')
# output of boundary_eval.py after its progress bar
TABLE = re.compile(r'^ +All .*', re.MULTILINE | re.DOTALL)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', type=Path, default=Path('work_dirs/demo'), help='output folder')
    return parser.parse_args()


def run(*command: str | Path) -> str:
    """Run a tool and show its progress, or its last lines if it fails; returns its output."""
    command = [str(part) for part in command]
    print(f'\n$ python {shlex.join(command)}', flush=True)
    output = []
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    for line in process.stdout:
        output.append(line)
        if PROGRESS.search(line):
            print(line, end='', flush=True)
    if process.wait():
        sys.exit(''.join(output[-30:]) + 'demo: the command above failed; these are its last lines')
    return ''.join(output)


def load_scenes(
    dataset: BaseSegDataset, predictions: Path
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Image (H,W,3), truth and prediction (H,W) of each validation scene, labels from 0."""
    scenes = []
    for sample in dataset.load_data_list():
        image = cv2.imread(sample['img_path'])[..., ::-1]
        # ADE20K's files number classes from 1, and 0 is unlabelled: 255 after the subtraction
        truth = cv2.imread(sample['seg_map_path'], cv2.IMREAD_GRAYSCALE) - np.uint8(1)
        name = Path(sample['img_path']).with_suffix('.png').name
        prediction = cv2.imread(str(predictions / name), cv2.IMREAD_GRAYSCALE) - np.uint8(1)
        scenes.append((image, truth, prediction))
    return scenes


def draw_predictions(
    scenes: list[tuple[np.ndarray, ...]], classes: tuple[str, ...], palette: list, title: str
) -> Figure:
    """A row for each scene: image (H,W,3), truth (H,W), prediction (H,W) and errors."""
    colours = np.full((256, 3), 255, np.uint8)
    colours[: len(palette)] = palette
    figure = Figure(figsize=(12, 2.35 * len(scenes) + 1.3), layout='constrained', dpi=110)
    figure.suptitle(title)
    rows = figure.subplots(len(scenes), 4, squeeze=False)
    for axes, (image, truth, prediction) in zip(rows, scenes, strict=True):
        wrong = (truth != prediction) & (truth != IGNORED)
        errors = np.where(wrong[..., None], (220, 30, 30), image // 2 + 110).astype(np.uint8)
        panels = image, colours[truth], colours[prediction], errors
        share = f'wrong: {wrong.sum() / (truth != IGNORED).sum():.0%} of the pixels'
        for ax, panel in zip(axes, panels, strict=True):
            ax.imshow(panel)
            ax.set_axis_off()
        axes[3].set_title(share)
    for ax, heading in zip(rows[0], ('image', 'truth', 'prediction'), strict=False):
        ax.set_title(heading)
    present = np.unique(np.stack([labels for _, *labels in scenes]))
    handles = [
        Patch(facecolor=colours[label] / 255, edgecolor='0.3', label=classes[label])
        for label in present[present != IGNORED]
    ]
    figure.legend(handles=handles, loc='outside lower center', ncols=9, fontsize=9, frameon=False)
    return figure


def main() -> None:
    out = parse_args().out
    write_sample_data('data/sample')
    run(TOOLS / 'train.py', CONFIG, '--sample', '--work-dir', out / 'run')
    checkpoint = (out / 'run/last_checkpoint').read_text().strip()
    test = [TOOLS / 'test.py', CONFIG, checkpoint, '--sample', '--work-dir', out / 'test']
    run(*test, '--out', out / 'predictions')

    cfg = Config.fromfile(CONFIG)
    use_sample_data(cfg)
    init_default_scope(cfg.default_scope)
    dataset = DATASETS.build(cfg.val_dataloader.dataset)
    meta = dataset.metainfo
    truths = dataset.data_prefix['seg_map_path']
    evaluate = TOOLS / 'analysis/boundary_eval.py', out / 'predictions', truths
    # ADE20K's own files number classes from 1
    labels = ['--classes', 'ade20k', '--reduce-zero-label', '--pred-reduce-zero-label']
    table = TABLE.search(run(*evaluate, *labels)).group().rstrip()

    run(TOOLS / 'analysis/report.py', out / 'run', '--out', out / 'report.html')

    scenes = load_scenes(dataset, out / 'predictions')
    step = max(1, len(scenes) // SCENES)
    shown = scenes[::step][:SCENES]
    title = f'{CONFIG.stem} --sample: held-out scenes'
    palette = sample_palette(meta['classes'], meta['palette'])
    figure = draw_predictions(shown, meta['classes'], palette, title)
    figure.savefig(out / 'predictions.png')

    print(f'\nAll pixels, and those near the boundaries of the truth (%)\n{table}\n\nLook at')
    for name in ('report.html', 'predictions.png'):
        print(f'  {out / name}')


if __name__ == '__main__':
    try:
        main()
    except KeyboardInterrupt:
        sys.exit('demo: stopped. `make demo` begins again.')

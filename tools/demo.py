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
from mmseg.datasets import ADE20KDataset

from mmbixt.scenes.files import write_scenes
from mmbixt.visualization.palette import scene_palette

IGNORED = 255
TOOLS = Path(__file__).resolve().parent
# patches of 8 pixels, so that the borders of small scenes are fine after minutes
CONFIG = TOOLS.parent / 'configs/xcit/semfpn_xcit_t12_p8_ade20k.py'
SHORTER = ['train_cfg.max_iters=450', 'train_cfg.val_interval=225', 'param_scheduler.1.end=450']
SCENES = 4  # number of scenes in the picture
# lines of the tools' output to show: changes by --sample, each step, written files
PROGRESS = re.compile(r'^The config is|^  \w+: |Iter\(|saved to|^predicting|^drawing|^report: ')
# output of boundary_eval.py after its progress bar
TABLE = re.compile(r'^ +All .*', re.MULTILINE | re.DOTALL)


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


def read_label_map(path: Path) -> np.ndarray:
    """ADE20K's files number classes from 1, and 0 is unlabelled: 255 after the subtraction."""
    return cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) - np.uint8(1)


def draw_predictions(data: Path, predictions: Path) -> Figure:
    """A row for each of some scenes: image, truth, prediction and errors."""
    classes = ADE20KDataset.METAINFO['classes']
    colours = np.full((256, 3), 255, np.uint8)
    colours[: len(classes)] = scene_palette(classes, ADE20KDataset.METAINFO['palette'])
    images = sorted((data / 'images/validation').iterdir())
    images = images[::5][:SCENES]  # lakes and streets
    figure = Figure(figsize=(12, 2.35 * len(images) + 1.3), layout='constrained', dpi=110)
    figure.suptitle(f'{CONFIG.stem} --sample: held-out scenes')
    present = set()
    for axes, file in zip(figure.subplots(len(images), 4), images, strict=True):
        image = cv2.imread(str(file))[..., ::-1]
        truth = read_label_map(data / 'annotations/validation' / f'{file.stem}.png')
        prediction = read_label_map(predictions / f'{file.stem}.png')
        wrong = (truth != prediction) & (truth != IGNORED)
        errors = np.where(wrong[..., None], (220, 30, 30), image // 2 + 110).astype(np.uint8)
        panels = {'image': image, 'truth': colours[truth], 'prediction': colours[prediction]}
        share = wrong.sum() / (truth != IGNORED).sum()
        panels[f'wrong: {share:.0%} of the pixels'] = errors
        for ax, (heading, panel) in zip(axes, panels.items(), strict=True):
            ax.imshow(panel)
            ax.set_axis_off()
            if file == images[0] or panel is errors:
                ax.set_title(heading)
        present |= {*np.union1d(truth, prediction).tolist()} - {IGNORED}
    handles = [
        Patch(facecolor=colours[label] / 255, edgecolor='0.3', label=classes[label])
        for label in sorted(present)
    ]
    figure.legend(handles=handles, loc='outside lower center', ncols=10, fontsize=9, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--out', type=Path, default=Path('work_dirs/demo'), help='output folder')
    out = parser.parse_args().out
    data = write_scenes('data/sample') / 'ade/ADEChallengeData2016'
    predictions = out / 'predictions'

    train = TOOLS / 'train.py', CONFIG, '--sample', '--work-dir', out / 'run'
    run(*train, '--cfg-options', *SHORTER)
    checkpoint = (out / 'run/last_checkpoint').read_text().strip()
    test = [TOOLS / 'test.py', CONFIG, checkpoint, '--sample', '--work-dir', out / 'test']
    run(*test, '--out', predictions)
    evaluate = TOOLS / 'analysis/boundary_eval.py', predictions, data / 'annotations/validation'
    labels = ['--classes', 'ade20k', '--reduce-zero-label', '--pred-reduce-zero-label']
    table = TABLE.search(run(*evaluate, *labels)).group().rstrip()
    run(TOOLS / 'analysis/report.py', out / 'run', '--out', out / 'report.html')
    draw_predictions(data, predictions).savefig(out / 'predictions.png')

    print(f'\nAll pixels, and those near the boundaries of the truth (%)\n{table}\n\nLook at')
    for name in ('report.html', 'predictions.png'):
        print(f'  {out / name}')


if __name__ == '__main__':
    try:
        main()
    except KeyboardInterrupt:
        sys.exit('demo: stopped. `make demo` begins again.')

"""Test a checkpoint at several sizes, and draw its scores over the size.

A size is the side of the crops of a classifier, or the short side of the images of a segmentor or
detector; the other numbers of the test pipeline are scaled with it. Writes WORK_DIR/sizes.json and
WORK_DIR/sizes.png. Arguments after -- are for tools/test.py.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mmengine.config import Config

from mmbixt.cli import run, split_arguments
from mmbixt.config import PROJECTS, ConfigError, data_sets, read_config
from mmbixt.evaluation.boundary import MAIN_BAND
from mmbixt.report.work_dir import last_scores

TEST = PROJECTS.parent / 'tools/test.py'
# the names that the frameworks log, and factors that give per cent
METRICS = {
    'top-1': ('accuracy/top1', 1),
    'top-5': ('accuracy/top5', 1),
    'mIoU': ('mIoU', 1),
    'box AP': ('coco/bbox_mAP', 100),
    'mask AP': ('coco/segm_mAP', 100),
    f'mIoU in {MAIN_BAND}': (f'{MAIN_BAND}/mIoU', 1),
    'Boundary IoU': ('boundary0.02/mIoU', 1),
    'boundary AP': ('coco/boundary_mAP', 100),
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python projects/studies/tools/resolution_curve.py xcit_s12_p16_in1k '
        'xcit://small12-p16 --sizes 160 192 224 256 288 320 384 448',
    )
    add = parser.add_argument
    add('config', help='a file, or the name of a config')
    add('checkpoint', help='checkpoint file, or the name of published weights')
    add('--sizes', type=int, nargs='+', required=True, metavar='PIXELS')
    add('--boundary', action='store_true', help='also scores near boundaries')
    add('--work-dir', type=Path, help='default: work_dirs/CONFIG-CHECKPOINT-sizes')
    words, passed = split_arguments()
    args = parser.parse_args(words)
    name = f'{Path(args.config).stem}-{Path(args.checkpoint).stem}-sizes'
    args.work_dir = args.work_dir or Path('work_dirs', name)
    args.passed = passed
    return args


def options_of(cfg: Config, size: int) -> list[str]:
    """The --cfg-options that test at a size."""
    options = []
    for path, dataset in data_sets(cfg, 'test'):
        sides = {
            f'{path}.pipeline.{index}.{key}': step[key]
            for index, step in enumerate(dataset.get('pipeline', []))
            for key in ('scale', 'crop_size')
            if step.get(key)
        }
        if not sides:
            raise ConfigError(f'{path}.pipeline has no step with a scale or crop_size.')
        last = [*sides.values()][-1]  # the crop of a classifier
        own = last if isinstance(last, int) else min(last)
        for name, side in sides.items():
            scaled = [round(x * size / own) for x in ([side] if isinstance(side, int) else side)]
            value = scaled[0] if isinstance(side, int) else tuple(scaled)
            options.append(f'{name}={value}'.replace(' ', ''))
    return options


def test(args: argparse.Namespace, size: int, options: list[str]) -> dict[str, float]:
    """The scores at a size, per cent."""
    folder = args.work_dir / str(size)
    words = [args.config, args.checkpoint, '--work-dir', str(folder), *args.passed]
    words += ['--boundary'] * args.boundary + ['--cfg-options', *options]
    subprocess.run([sys.executable, str(TEST), *words], check=True)
    found = last_scores(folder)
    return {x: factor * found[name] for x, (name, factor) in METRICS.items() if name in found}


def draw(scores: Mapping[int, Mapping[str, float]], title: str, file: Path) -> None:
    """A line for each metric over the sizes."""
    from matplotlib.figure import Figure  # takes a second

    figure = Figure(figsize=(7, 4.8), layout='constrained', dpi=110)
    axes = figure.subplots()
    for metric in next(iter(scores.values())):
        values = [found[metric] for found in scores.values()]
        axes.plot([*scores], values, 'o-', label=metric)
    axes.set(xlabel='size (pixels)', ylabel='score (%)', title=title, xticks=[*scores])
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file)


def main() -> None:
    args = parse_args()
    cfg = read_config(args.config)
    scores = {}
    for size in sorted(set(args.sizes)):
        scores[size] = test(args, size, options_of(cfg, size))
    (args.work_dir / 'sizes.json').write_text(json.dumps(scores, indent=2) + '\n')
    draw(
        scores,
        f'{Path(args.config).stem}, {Path(args.checkpoint).name}',
        args.work_dir / 'sizes.png',
    )
    for size, found in scores.items():
        print(f'{size:5} ', '  '.join(f'{metric} {value:.2f}' for metric, value in found.items()))


if __name__ == '__main__':
    run(main)

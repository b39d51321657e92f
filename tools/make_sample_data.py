"""Write sample data: generated streets and lakes with their annotations.

They have the layouts of ADE20K (semantic segmentation), COCO (detection, instance segmentation) and
ImageNet (classification), so that all configs can be tried without downloads.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torchvision.models import MobileNet_V2_Weights
from torchvision.ops import masks_to_boxes
from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks

from mmbixt.cli import run
from mmbixt.sample.sample_data import write_sample_data
from mmbixt.sample.scenes import ADE_LABELS, Scene, imagenet_class, make_scene
from mmbixt.visualization.palette import sample_palette

IMAGENET = MobileNet_V2_Weights.IMAGENET1K_V1.meta['categories']
MASKS = ['cyan', 'orange', 'lime', 'red', 'blue', 'yellow', 'magenta'] * 9  # colours


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add, default = parser.add_argument, '(default: %(default)s)'
    add('--out', default='data/sample', metavar='DIR', help=f'folder to write {default}')
    add('--train', type=int, default=256, metavar='N', help=f'training scenes {default}')
    add('--val', type=int, default=32, metavar='N', help=f'validation scenes {default}')
    text = 'height and width of the pictures (default: 192 256)'
    add('--size', type=int, nargs=2, default=(192, 256), metavar=('H', 'W'), help=text)
    add('--preview', type=Path, metavar='PNG', help='draw some of the scenes with their labels')
    return parser.parse_args()


def preview(scenes: list[Scene]) -> Figure:
    """Two scenes per row: image with its ImageNet class, label map, instances; a legend below."""
    names = sorted(ADE_LABELS, key=ADE_LABELS.get)
    colours = np.zeros((256, 3), np.uint8)
    colours[[ADE_LABELS[name] for name in names]] = sample_palette(names, [(0, 0, 0)] * len(names))
    height, width = scenes[0].semantic.shape
    rows = (len(scenes) + 1) // 2
    size = (14, rows * (14 / 6 * height / width + 0.2) + 0.6)
    figure = Figure(figsize=size, layout='constrained')
    axes = figure.subplots(rows, 6, squeeze=False).ravel()
    for ax in axes:
        ax.set_axis_off()
    for k, scene in enumerate(scenes):
        picture = torch.from_numpy(scene.image).permute(2, 0, 1)
        if scene.instances:
            masks = torch.from_numpy(np.stack([mask for _, mask in scene.instances]))
            objects = [name for name, _ in scene.instances]
            picture = draw_segmentation_masks(picture, masks, colors=MASKS[: len(masks)])
            picture = draw_bounding_boxes(picture, masks_to_boxes(masks), objects, colors='white')
        panels = scene.image, colours[scene.semantic], picture.permute(1, 2, 0)
        for ax, panel in zip(axes[3 * k :], panels, strict=False):
            ax.imshow(panel)
        axes[3 * k].set_title(IMAGENET[imagenet_class(scene)], fontsize=9, pad=2)
    handles = [Patch(facecolor=colours[ADE_LABELS[name]] / 255, label=name) for name in names]
    figure.legend(handles=handles, loc='outside lower center', ncols=7, frameon=False)
    return figure


def main() -> None:
    args = parse_args()
    root = write_sample_data(args.out, args.train, args.val, *args.size)
    print(f'sample data: {root}')
    print(f'  for mmseg: data_root={root / "ade" / "ADEChallengeData2016"}')
    print(f'  for mmdet: data_root={root / "coco"}')
    print(f'  for mmpretrain: data_root={root / "imagenet"}')
    if args.preview:
        args.preview.parent.mkdir(parents=True, exist_ok=True)
        preview([make_scene(seed, *args.size) for seed in range(18, 28)]).savefig(args.preview)
        print(f'preview: {args.preview}')


if __name__ == '__main__':
    run(main)

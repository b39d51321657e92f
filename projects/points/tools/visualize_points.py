"""Draw a shape of points by its parts, and by the latents of BiXT to which its points attend most.

The shape is one of the config's test set.
"""

import argparse
from pathlib import Path

import torch
from mmengine.registry import DATASETS

from mmbixt.cli import add_common_arguments, load_config, run
from projects.attention.visualize_attention import load_model
from projects.points.shapes import draw_shape


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog='Example: python projects/points/tools/visualize_points.py '
        'shapenetpart_bixt_ti_naive CHECKPOINT --sample --layer 5',
    )
    add_common_arguments(parser)
    parser.add_argument('checkpoint', help='file of the whole model')
    parser.add_argument('--index', type=int, default=0, help='of the shape in the test set (0)')
    parser.add_argument('--layer', type=int, default=5, help='counted from 0 (5)')
    parser.add_argument('--out', type=Path, help='default: work_dirs/points/shape_INDEX.png')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    backbone = load_model(cfg, args.checkpoint).backbone
    shape = DATASETS.build(cfg.test_dataloader.dataset)[args.index]
    points, parts, category = (
        torch.from_numpy(shape[key])[None] if key in shape else None
        for key in ('points', 'parts', 'category')
    )
    out = args.out or Path(f'work_dirs/points/shape_{args.index}.png')
    out.parent.mkdir(parents=True, exist_ok=True)
    draw_shape(backbone, points, category, parts, args.layer).savefig(out)
    print(out)


if __name__ == '__main__':
    run(main)

"""Draw the errors of a segmentor near boundaries, one picture for each image.

A picture shows image, truth, prediction, and the errors in a band around the true boundaries:
missed or moved boundaries, and predicted classes that are not near in the truth. For mmseg configs.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from mmengine.dataset import pseudo_collate
from mmengine.device import get_device
from mmengine.registry import DATASETS, MODELS, init_default_scope
from tqdm import tqdm

from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import load_whole_state
from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.config import without_downloads
from mmbixt.evaluation.boundary import band_name, band_width
from mmbixt.evaluation.sums import SumsFileError, find_sums, indices_of, read_sums, unique_names
from mmbixt.visualization.choice import image_scores, worst_images
from mmbixt.visualization.palette import sample_palette
from mmbixt.visualization.samples import NoLabelsError, read_image, sample_figure

EPILOG = """Examples:
  python tools/analysis/visualize.py CONFIG CHECKPOINT --images 20
  python tools/analysis/visualize.py CONFIG CHECKPOINT --images ADE_val_00000003 ADE_val_00000017
  python tools/test.py CONFIG CHECKPOINT --boundary   # counts the pixels of each image
  python tools/analysis/visualize.py CONFIG CHECKPOINT --worst 20"""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add_common_arguments(parser)
    add, chosen = parser.add_argument, parser.add_mutually_exclusive_group()
    add('checkpoint', help='checkpoint file')
    text = 'names of images, with or without a suffix; or a number of images, evenly spaced in the '
    text += 'data set (default: 10)'
    chosen.add_argument('--images', nargs='+', default=['10'], metavar='IMAGE', help=text)
    text = 'the N images with the lowest mIoU in the band, from the counts in --sums; of similar '
    text += 'images, such as frames of a video, one if possible'
    chosen.add_argument('--worst', type=int, metavar='N', help=text)
    text = 'for --worst: boundary.npz of tools/test.py --boundary, boundary_eval.py --sums or '
    text += 'report.py, or a folder with it (default: the work dir)'
    add('--sums', type=Path, metavar='RUN', help=text)
    text = 'of the band, in pixels (3) or as a fraction of the diagonal (0.02); default: 3'
    add('--width', type=band_width, default=3, help=text)
    text = 'data set (default: val; with --worst test, whose images the tools count)'
    add('--split', choices=['val', 'test'], help=text)
    text = 'folder of the pictures (default: WORK_DIR/boundary_errors)'
    add('--out-dir', type=Path, help=text)
    args = parser.parse_args()
    args.split = args.split or ('test' if args.worst else 'val')
    return args


def choose(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Indices of images by their names; or of a number of images, evenly spaced."""
    if len(wanted) == 1 and wanted[0].isdecimal() and wanted[0] not in names:
        count = min(int(wanted[0]), len(names))
        return [i * len(names) // count for i in range(count)]
    stems = [name if name in names else Path(name).stem for name in wanted]
    if missing := {*stems}.difference(names):
        sys.exit(
            f'error: The data set has no image {min(missing)}. It has {len(names):,} images: '
            f'{", ".join(names[:5])} ...'
        )
    return [names.index(name) for name in stems]


def choose_worst(paths: Sequence[str], args: argparse.Namespace, work_dir: str) -> list[int]:
    counted = read_sums(find_sums(args.sums or work_dir))
    scores = image_scores(counted, counted.choose_band(band_name(args.width)))
    order = indices_of(counted.images, paths)
    return [
        order[i] for i in worst_images(scores, args.worst, lambda i: read_image(paths[order[i]]))
    ]


def main() -> None:
    args = parse_args()
    cfg = load_config(args, splits=(args.split,))
    out_dir = args.out_dir or Path(cfg.work_dir, 'boundary_errors')
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    dataset = DATASETS.build(cfg[f'{args.split}_dataloader'].dataset)
    paths = [dataset.get_data_info(i)['img_path'] for i in range(len(dataset))]
    names, meta = unique_names(paths), dict(dataset.metainfo)
    if args.sample:
        meta['palette'] = sample_palette(meta['classes'], meta['palette'])
    try:
        chosen = (
            choose_worst(paths, args, cfg.work_dir) if args.worst else choose(names, args.images)
        )
        model = MODELS.build(without_downloads(cfg.model))
        load_whole_state(model, load(args.checkpoint, map_location='cpu'))
        model = model.to(get_device()).eval()
        out_dir.mkdir(parents=True, exist_ok=True)
        for i in tqdm(chosen, disable=None):  # no bar in a file
            with torch.no_grad():
                (sample,) = model.test_step(pseudo_collate([dataset[i]]))
            title = f'{names[i]}, {Path(args.config).stem}: errors near boundaries'
            ignore_index = getattr(dataset, 'ignore_index', 255)
            figure = sample_figure(sample, meta, title, args.width, ignore_index)
            figure.savefig(out_dir / f'{names[i]}.png')
    except (SumsFileError, NoLabelsError) as error:
        sys.exit(f'error: {error}')
    print(f'{len(chosen)} pictures of {len(dataset):,} images: {out_dir}')


if __name__ == '__main__':
    run(main)

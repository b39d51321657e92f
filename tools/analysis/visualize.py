"""Draw the errors of a segmentor near boundaries, one picture for each image.

A picture shows image, truth, prediction, and the errors in a band around the true boundaries:
missed or moved boundaries, and predicted classes that are not near in the truth. For mmseg configs.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dataset import BaseDataset, pseudo_collate
from mmengine.device import get_device
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import CheckpointLoader

from mmbixt.checkpoints.state_dict import load_whole_state, shorten
from mmbixt.cli import add_common_arguments, load_config, read_config, run
from mmbixt.engine.boundary_vis_hook import NoLabelsError, read_image, sample_figure
from mmbixt.evaluation.boundary import band_name, band_width
from mmbixt.evaluation.sums import SumsFileError, find_sums, indices_of, read_sums, unique_names
from mmbixt.progress import progress
from mmbixt.visualization.choice import image_scores, worst_images
from mmbixt.visualization.palette import sample_palette

SHOWN = 5  # most names in an error

EPILOG = """Examples:
  python tools/analysis/visualize.py CONFIG CHECKPOINT --images 20
  python tools/analysis/visualize.py CONFIG CHECKPOINT --images ADE_val_00000003 ADE_val_00000017
  python tools/test.py CONFIG CHECKPOINT --boundary   # counts the pixels of each image
  python tools/analysis/visualize.py CONFIG CHECKPOINT --worst 20"""


class ChoiceError(ValueError):
    """The requested images do not exist."""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add_common_arguments(parser, 'mmseg')
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
    if args.sums and args.worst is None:
        parser.error('--sums RUN is for --worst N')
    if args.worst is not None and args.worst < 1:
        parser.error('--worst must be at least 1')
    args.split = args.split or ('test' if args.worst else 'val')
    return args


def choose(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Indices of images by their names; or of a number of images, evenly spaced."""
    if len(wanted) == 1 and wanted[0].isdecimal() and wanted[0] not in names:
        count = min(int(wanted[0]), len(names))
        if not count:
            raise ChoiceError('--images 0: give a number, at least 1, or names')
        return [i * len(names) // count for i in range(count)]
    return [find(names, name) for name in wanted]


def find(names: Sequence[str], name: str) -> int:
    """Index of the image with a name, which may have a suffix."""
    for text in (name, Path(name).stem):
        if text in names:
            return names.index(text)
    raise ChoiceError(
        f'The data set has no image {name}. It has {len(names):,} images: {shorten(names, SHOWN)}.'
    )


def chosen_images(dataset: BaseDataset, args: argparse.Namespace) -> dict[int, str]:
    """Names of pictures by the indices of their images."""
    paths = [dataset.get_data_info(i)['img_path'] for i in range(len(dataset))]
    names = unique_names(paths)
    if args.worst is None:
        return {i: names[i] for i in choose(names, args.images)}
    file = find_sums(args.sums)
    counted = read_sums(file)
    if len(counted.images) != len(names):
        raise ChoiceError(
            f'{file} has {len(counted.images):,} images, but the data set of --split {args.split} '
            f'has {len(names):,}. tools/test.py CONFIG CHECKPOINT --boundary counts those of the '
            'test set.'
        )
    found = image_scores(counted, counted.choose_band(band_name(args.width)))
    order = indices_of(counted.images, paths)
    worst = worst_images(found, args.worst, lambda i: read_image(paths[order[i]]))
    return {order[i]: names[order[i]] for i in worst}


def draw(
    cfg: Config, dataset: BaseDataset, chosen: Mapping[int, str], args: argparse.Namespace
) -> None:
    """Write a picture for each of the chosen images, by the names of the files."""
    model = MODELS.build(cfg.model)
    checkpoint = CheckpointLoader.load_checkpoint(args.checkpoint, map_location='cpu')
    load_whole_state(model, checkpoint)
    model = model.to(get_device()).eval()
    ignore_index = getattr(dataset, 'ignore_index', 255)
    meta = dataset.metainfo
    if args.sample:
        meta['palette'] = sample_palette(meta['classes'], meta['palette'])
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for i, name in progress([*chosen.items()]):
        with torch.no_grad():
            (sample,) = model.test_step(pseudo_collate([dataset[i]]))
        title = f'{name}, {Path(args.config).stem}: errors near boundaries'
        figure = sample_figure(sample, meta, title, args.width, ignore_index)
        figure.savefig(args.out_dir / f'{name}.png')


def main() -> None:
    args = parse_args()
    scope = read_config(args.config).get('default_scope', 'mmseg')
    if scope in ('mmdet', 'mmpretrain'):
        sys.exit(
            f'error: {args.config} is a config of {scope}. This tool draws label maps of mmseg '
            'configs; for predictions of other models use tools/test.py --show-dir.'
        )
    cfg = load_config(args, splits=(args.split,))
    args.out_dir = args.out_dir or Path(cfg.work_dir, 'boundary_errors')
    args.sums = args.sums or Path(cfg.work_dir)
    init_default_scope(scope)
    if not cfg.get(f'{args.split}_dataloader'):
        sys.exit(f'error: {args.config} has no {args.split}_dataloader.')
    dataset = DATASETS.build(cfg[f'{args.split}_dataloader'].dataset)
    try:
        chosen = chosen_images(dataset, args)
        draw(cfg, dataset, chosen, args)
    except (ChoiceError, SumsFileError, NoLabelsError) as error:
        sys.exit(f'error: {error}')
    print(f'{len(chosen)} pictures of {len(dataset):,} images: {args.out_dir}')


if __name__ == '__main__':
    run(main)

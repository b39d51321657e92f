"""Pictures of the attention of a model for an image.

BiXT         attention of each latent over the tokens, attention of the tokens to each latent, and
             the strongest latent of each token
XCiT         magnitude of each token in queries and keys, by head
BiFormer     for a point: the routed regions of its region, and its attention in them
BiSA-Swin    emphasis of each query by inverse attention, by head; for a point: both kinds of
             attention in its window

The image is loaded by the test pipeline of the config. docs/attention.md explains the pictures.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from mmbixt.backbones import BiXT, XCiT
from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.visualization.attention import AttentionPictureError, draw_figures
from mmbixt.visualization.attention.loading import load_backbone, prepare_image
from mmbixt.visualization.attention.pictures import check_point

EPILOG = """Examples:
  python tools/analysis/visualize_attention.py configs/bixt/semfpn_bixt_ti_ade20k.py \
work_dirs/demo/run/iter_700.pth photo.jpg --sample --layers 3 11
  python tools/analysis/visualize_attention.py configs/biformer/semfpn_biformer_t_ade20k.py \
biformer.pth photo.jpg --point 120 80 --heads each"""


def heads(text: str) -> str | int:
    if text in ('mean', 'each'):
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not 'mean', 'each' or a number from 0")
    return int(text)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add_common_arguments(parser)
    add, where = parser.add_argument, parser.add_mutually_exclusive_group()
    add('checkpoint', help="file of the whole model, or of the authors' backbone")
    add('image', help='an image file')
    text = 'counted from 0: 7 for BiXT and XCiT; 2.5 for block 5 of stage 2, or 2 for the whole '
    text += 'stage, for BiFormer and BiSA-Swin; or all (default: a few)'
    add('--layers', nargs='+', metavar='LAYER', help=text)
    text = 'mean over the heads of a layer, each head, or one head, counted from 0 (default: each '
    text += 'for XCiT and for inverse attention of BiSA-Swin, mean for the others)'
    add('--heads', type=heads, metavar='mean|each|INDEX', help=text)
    text = 'in pixels of the image file, for BiFormer and BiSA-Swin (default: the centre)'
    where.add_argument('--point', type=float, nargs=2, metavar=('X', 'Y'), help=text)
    where.add_argument('--click', action='store_true', help='choose the point in a window')
    add('--out-dir', type=Path, help='default: work_dirs/attention/NAME_OF_THE_IMAGE')
    return parser.parse_args()


def click_point(image: np.ndarray) -> tuple[float, float]:
    """Show an image (H,W,3) in a window; returns (x, y) of a click in pixels."""
    figure, ax = pyplot.subplots(layout='constrained')
    if pyplot.get_backend().lower() == 'agg':  # matplotlib's choice without a display
        pyplot.close(figure)
        raise AttentionPictureError(
            '--click needs a display, and there is none. Give the point: --point X Y.'
        )
    figure.suptitle('Click the point whose attention is to be drawn')
    ax.imshow(image)
    clicked = figure.ginput(1, timeout=0)
    pyplot.close(figure)
    if not clicked:
        raise AttentionPictureError('The window was closed without a click.')
    return clicked[0]


def choose_point(
    args: argparse.Namespace, image: np.ndarray, original: tuple[int, int]
) -> tuple[float, float] | None:
    """The chosen point in pixels of the resized image (h,w,3); ``original`` is (width, height)."""
    if args.click:
        return click_point(image)
    if args.point is None:
        return None
    width, height = original
    check_point(args.point, width, height)
    rows, columns = image.shape[:2]
    return args.point[0] * columns / width, args.point[1] * rows / height


def draw(args: argparse.Namespace) -> None:
    cfg = load_config(args, splits=())
    inputs, image, original = prepare_image(cfg, args.image)
    backbone = load_backbone(cfg, args.checkpoint)
    if cfg.model.get('test_cfg', {}).get('mode') == 'slide':
        print('This config evaluates crops of images; the pictures are for the whole image.')
    point = choose_point(args, image, original)
    if point is not None and isinstance(backbone, BiXT | XCiT):
        print(f'The pictures of {type(backbone).__name__} show the whole image, not a point.')
    rows, columns = content = image.shape[:2]
    print(f'{args.image}: {original[0]} x {original[1]} pixels, resized to {columns} x {rows}')
    folder = args.out_dir or Path('work_dirs/attention', Path(args.image).stem)
    figures = draw_figures(backbone, inputs, image, args.layers, args.heads, point, content)
    for name, figure in figures:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f'{name}.png'
        figure.savefig(file)
        print(file)


def main() -> None:
    args = parse_args()
    try:
        draw(args)
    except AttentionPictureError as error:
        sys.exit(f'error: {error}')


if __name__ == '__main__':
    run(main)

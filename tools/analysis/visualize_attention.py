"""Draw the attention of a model for an image, one picture for each layer.

BiXT         the latent that each patch attends to most, and where these, or all latents, attend
XCiT         the channels of each head that attend most to each other, as maps over the image; of
             classifiers also where the class token attends in each head
BiFormer     for a point: the routed regions of its region, and its attention in them
BiSA-Swin    for a point: its attention in its window in both directions; for all patches the
             highest attention of a value to them

The image is loaded by the test pipeline of the config. docs/attention.md explains the pictures.
"""

import argparse
from pathlib import Path

from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.visualization.attention import attention_figures
from mmbixt.visualization.attention.loading import load_model, prepare_image

EPILOG = """Examples:
  python tools/analysis/visualize_attention.py configs/xcit/semfpn_xcit_t12_p8_ade20k.py \
work_dirs/demo/run/iter_450.pth photo.jpg --sample --layers 3 11
  python tools/analysis/visualize_attention.py configs/xcit/xcit_s12_p16_in1k.py \
xcit://small12-p16 photo.jpg --layers class
  python tools/analysis/visualize_attention.py configs/biformer/semfpn_biformer_t_ade20k.py \
biformer.pth photo.jpg --point 120 80 --heads 0"""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add_common_arguments(parser)
    add = parser.add_argument
    add('checkpoint', help='file of the whole model, or of the authors')
    add('image', help='an image file')
    text = 'counted from 0: 7 for BiXT and XCiT; 2.5 for block 5 of stage 2, or 2 for the whole '
    text += 'stage, for BiFormer and BiSA-Swin; class.1 or class for class attention of XCiT; or '
    text += 'all (default: one layer)'
    add('--layers', nargs='+', metavar='LAYER', help=text)
    text = 'counted from 0; of several the mean is drawn, for XCiT each (default: the mean of all, '
    text += 'for XCiT the four with the highest attention, or all of class attention)'
    add('--heads', type=int, nargs='+', metavar='HEAD', help=text)
    text = 'draw all latents of BiXT instead of the four with the most patches'
    add('--all-latents', action='store_true', help=text)
    text = 'in pixels of the image file, for BiFormer and BiSA-Swin (default: the centre); where '
    text += 'the test pipeline crops, as those of classifiers do, relative to the crop'
    add('--point', type=float, nargs=2, metavar=('X', 'Y'), help=text)
    text = 'default: work_dirs/attention/NAME_OF_THE_IMAGE'
    add('--out-dir', type=Path, help=text)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    inputs, image, (height, width) = prepare_image(cfg, args.image)
    rows, columns = content = image.shape[:2]
    print(f'{args.image}: {width} x {height} pixels, loaded as {columns} x {rows}')
    model = load_model(cfg, args.checkpoint)
    point = args.point and (args.point[0] * columns / width, args.point[1] * rows / height)
    options = args.layers, args.heads, point, content, args.all_latents
    figures = attention_figures(model, inputs, image, *options)
    folder = args.out_dir or Path('work_dirs/attention', Path(args.image).stem)
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        file = folder / f'{name}.png'
        figure.savefig(file)
        print(file)


if __name__ == '__main__':
    run(main)

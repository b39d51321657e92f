"""Draw where the first attention of two models computes other structures of an image.

The picture shows the structural dissimilarity (1 - SSIM) / 2 of its outputs: the mean over the
channels, and the channels that differ most. The backbones must have the same width and stride
there. The test pipeline of each config loads the image. Needs scikit-image (pip install
scikit-image). README.md explains the picture.
"""

import argparse
import sys
from pathlib import Path

from mmbixt.cli import add_common_arguments, load_config, run
from projects.attention.visualize_attention import load_model, prepare_image
from projects.studies.dissimilarity import dissimilarity_figure

EPILOG = """Example:
  python projects/studies/tools/feature_dissimilarity.py semfpn_swin_t_ade20k swin.pth \
semfpn_bisa_swin_t_ade20k bisa.pth photo.jpg"""


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EPILOG
    )
    add_common_arguments(parser)
    add = parser.add_argument
    add('checkpoint', help='file of the whole model, or of the authors')
    add('other_config', help='the config to compare with')
    add('other_checkpoint', help='its checkpoint')
    add('image', help='an image file')
    text = 'default: work_dirs/dissimilarity/NAME_OF_THE_IMAGE.png'
    add('--out', type=Path, metavar='FILE.png', help=text)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    other = argparse.Namespace(**vars(args) | dict(config=args.other_config))
    configs = [load_config(one) for one in (args, other)]
    files = args.checkpoint, args.other_checkpoint
    models = [load_model(*pair) for pair in zip(configs, files, strict=True)]
    loaded = [prepare_image(cfg, args.image) for cfg in configs]
    names = ' and '.join(Path(name).stem for name in (args.config, args.other_config))
    title = f'Structural dissimilarity after the first attention: {names}'
    image = loaded[0][1]
    try:
        inputs = [one[0] for one in loaded]
        figure = dissimilarity_figure(models, inputs, image, title, image.shape[:2])
    except ImportError as error:
        sys.exit(f'error: {error}')
    file = args.out or Path('work_dirs/dissimilarity', f'{Path(args.image).stem}.png')
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    print(file)


if __name__ == '__main__':
    run(main)

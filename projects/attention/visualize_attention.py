"""Draw the attention of a model for an image, one picture for each layer.

The image is loaded by the test pipeline of the config. README.md explains options and pictures.
"""

import argparse
from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from mmbixt.checkpoints.loader import load_weights
from mmbixt.checkpoints.state_dict import take_part
from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.config import test_set, type_name
from mmbixt.visualization.images import as_rgb
from projects.attention import attention_figures


def load_model(cfg: Config, checkpoint: str) -> nn.Module:
    """The backbone of a config, and its neck if that is class attention, with weights from a file.

    The file is one of mmbixt's of the whole model, or one of the authors.
    """
    init_default_scope(cfg.default_scope)
    state, model = load_weights(checkpoint), nn.Module()
    for name in ['backbone'] + ['neck'] * ('ClassAttentionNeck' in str(cfg.model.get('neck'))):
        model.add_module(name, MODELS.build(cfg.model[name]))
        model.get_submodule(name).load_state_dict(take_part(state, f'{name}.') or state)
    return model.eval()


def prepare_image(cfg: Config, path: str) -> tuple[Tensor, np.ndarray, tuple[int, int]]:
    """An image file by the test pipeline and the preprocessor of a config.

    Returns:
        The inputs of the backbone, (1,3,H,W); the image to draw on, (h,w,3), RGB, in uint8:
        resized, without padding; (height, width) of the file.
    """
    steps = [step for step in test_set(cfg).pipeline if 'Annotations' not in str(step.type)]
    settings = cfg.model.get('data_preprocessor') or cfg.data_preprocessor  # of classifiers
    if 'LoadImageFromFile' not in map(type_name, steps):  # CIFAR's images are in memory, in RGB
        steps, settings = [dict(type='LoadImageFromFile'), *steps], dict(settings, to_rgb=True)
    init_default_scope(cfg.default_scope)
    packed = Compose(steps)(dict(img_path=path, img_id=0))
    preprocessor = MODELS.build(settings, default_args=dict(type='ClsDataPreprocessor')).eval()
    inputs = preprocessor(pseudo_collate([packed]), training=False)['inputs']
    image = as_rgb(packed['inputs'].permute(1, 2, 0).numpy())
    return inputs, image, packed['data_samples'].ori_shape[:2]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_common_arguments(parser)
    add = parser.add_argument
    add('checkpoint', help='file of the whole model, or of the authors')
    add('image', help='an image file')
    add('--layers', nargs='+', metavar='LAYER', help='such as 7, 2.5, 2, class.1, or all')
    add('--heads', type=int, nargs='+', metavar='HEAD', help='counted from 0')
    add('--all-latents', action='store_true', help='of BiXT, instead of four')
    add('--point', type=float, nargs=2, metavar=('X', 'Y'), help='default: the centre')
    add('--out-dir', type=Path, help='default: work_dirs/attention/NAME_OF_THE_IMAGE')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    inputs, image, (height, width) = prepare_image(cfg, args.image)
    rows, columns = content = image.shape[:2]
    print(f'{args.image}: {width} x {height} pixels, loaded as {columns} x {rows}')
    model = load_model(cfg, args.checkpoint)
    point = args.point and (args.point[0] * columns / width, args.point[1] * rows / height)
    options = dict(heads=args.heads, all_latents=args.all_latents)
    figures = attention_figures(model, inputs, image, args.layers, point, content, **options)
    folder = args.out_dir or Path('work_dirs/attention', Path(args.image).stem)
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(folder / f'{name}.png')
        print(folder / f'{name}.png')


if __name__ == '__main__':
    run(main)

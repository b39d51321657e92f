"""Draw which latent of a trained LatentMaskHead took which segment of an image."""

import argparse
from pathlib import Path

from mmengine.registry import MODELS, init_default_scope

from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import load_whole_state
from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.visualization.attention.loading import prepare_image
from projects.latent_masks.pictures import latent_masks_figure


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_common_arguments(parser)
    parser.add_argument('checkpoint', help='file of the whole model')
    parser.add_argument('image', help='an image file')
    text = 'default: work_dirs/latent_masks/NAME_OF_THE_IMAGE.png'
    parser.add_argument('--out', type=Path, metavar='FILE.png', help=text)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    init_default_scope(cfg.default_scope)
    content, model = load(args.checkpoint, 'cpu'), MODELS.build(cfg.model).eval()
    load_whole_state(model, content)
    classes = content['meta']['dataset_meta']['classes']
    inputs, image, _ = prepare_image(cfg, args.image)
    figure = latent_masks_figure(model, inputs, image, classes, image.shape[:2])
    file = args.out or Path('work_dirs/latent_masks', f'{Path(args.image).stem}.png')
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    print(file)


if __name__ == '__main__':
    run(main)

"""Predict images of any size: label maps (mmseg), boxes and masks (mmdet) or labels (mmpretrain).

DIR gets a PNG of labels with the colours of the classes for each image, under its name and
subfolder. By default photos are resized as in the test pipeline, the size at which the model was
evaluated. Images that are larger than a tile are predicted in overlapping tiles. Detectors write
predictions.json, COCO's list of results, and images.json, the images and categories of their
numbers; classifiers predictions.jsonl; both a picture of each image.
"""

import mmbixt.passive_threads  # noqa: F401

import argparse
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from mmbixt.cli import run
from mmbixt.config import ConfigError, read_config
from mmbixt.predict.files import image_files, output_paths
from mmbixt.predict.outputs import ClassificationOutput, DetectionOutput, SegmentationOutput


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/predict.py configs/xcit/semfpn_xcit_s12_p16_ade20k.py '
        'xcit://ade-semfpn-small12-p16 photos/ --out results --overlay',
    )
    add = parser.add_argument
    add('config', help='a file, PACKAGE::PATH of an installed package, or the name of a config')
    add('checkpoint', help='of the whole model; for segmentors also a file of export_onnx.py')
    add('images', nargs='+', metavar='IMAGE', help='files, folders, or patterns')
    add('--out', type=Path, required=True, metavar='DIR', help='folder of the results')
    add('--device', help="'cuda' or 'cpu' (default: a GPU if torch finds one)")
    text = 'of detectors: the least score of an object in a picture (0.3)'
    add('--score', type=float, default=0.3, metavar='F', help=text)
    only = parser.add_argument_group('segmentors')
    add, size = only.add_argument, only.add_mutually_exclusive_group()
    add('--overlay', action='store_true', help='also blends of photos and labels, and legend.png')
    text = "also the probability of each pixel's label, 0 to 255"
    add('--probabilities', action='store_true', help=text)
    text = 'factor of the size of photos; 1 for objects as large in pixels as in training'
    size.add_argument('--scale', type=float, metavar='F', help=text)
    size.add_argument('--short-side', type=int, metavar='N', help='resize to this shorter side')
    text = "side of a tile (the windows of the config's test_cfg, otherwise 1024)"
    add('--tile', type=int, metavar='N', help=text)
    add('--overlap', type=int, metavar='N', help='of two tiles (a quarter of a tile)')
    add('--batch', type=int, metavar='N', help='tiles at once (4; on a CPU 1)')
    add('--whole', action='store_true', help='no tiles; memory grows with the image')
    add('--amp', action='store_true', help='compute in bfloat16')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.device == 'cuda' and not torch.cuda.is_available():
        raise ConfigError('--device cuda: torch finds no GPU.')
    config, images = read_config(args.config), image_files(args.images)
    kinds = dict(mmdet=DetectionOutput, mmpretrain=ClassificationOutput)
    kind = kinds.get(config.get('default_scope'), SegmentationOutput)
    paths = output_paths(images, args.out, kind.ends)
    files = [Path(f'{path}{end}') for path in paths.values() for end in kind.ends]
    for file in [*files, *(args.out / name for name in kind.files)]:
        if file.exists():
            raise FileExistsError(f'{file} exists, choose another folder: --out')
    predict, failed = kind(config, args), 0
    for path, out in tqdm(paths.items(), disable=None):  # no bar in a file
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            predict(path, out, images[path])
        except ConfigError:  # of all images
            raise
        except Exception as error:  # the other images are still predicted
            failed += 1
            tqdm.write(f'{path}: {type(error).__name__}: {error}', file=sys.stderr)
    if kind is DetectionOutput:
        predict.finish(args.out)
    print(f'{len(paths) - failed} of {len(paths)} images predicted, {failed} failed: {args.out}')
    sys.exit(bool(failed))


if __name__ == '__main__':
    run(main)

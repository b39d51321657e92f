"""Export a segmentor, detector or classifier to ONNX, and check it in onnxruntime.

The input `images` is float32 (batch,3,height,width): values from 0 to 255, channels in the order
blue, green, red, as OpenCV reads them. The outputs are, of

  segmentors    labels (batch,height,width), or with --logits logits (batch,classes,height,width)
  detectors     (Mask R-CNN, Faster R-CNN, RetinaNet) of one image boxes (n,4), scores (n), which
                are 0 where there are fewer objects, labels (n) and masks (n,28,28)
  classifiers   scores (batch,classes)

The file is compared with the model, as tools/test.py runs it, and not written if the two differ.
docs/export.md shows programs that run files without torch, and how to export a backbone.
"""

import argparse
import sys
from pathlib import Path

from mmbixt.cli import run
from mmbixt.config import read_config
from mmbixt.export import export


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/export_onnx.py configs/bixt/semfpn_bixt_ti_ade20k.py '
        'iter_80000.pth bixt.onnx --dynamic',
    )
    add = parser.add_argument
    add('config', help='a file, PACKAGE::PATH of an installed package, or the name of a config')
    add('checkpoint', help='of the whole model')
    add('out', type=Path, help='file to write, NAME.onnx')
    text = 'the only size (default: 480 544, of detectors 800 1344, of classifiers 224 224)'
    add('--size', type=int, nargs=2, metavar=('H', 'W'), help=text)
    text = 'of objects, in which detectors are compared (default: generated scenes)'
    add('--photo', metavar='FILE', help=text)
    only = parser.add_argument_group('segmentors')
    text = 'for images of any size (not BiFormer and BiSA-Swin), not of one size'
    only.add_argument('--dynamic', action='store_true', help=text)
    only.add_argument('--logits', action='store_true', help='return logits, not labels')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    config = read_config(args.config)
    options = {name: True for name in ('dynamic', 'logits') if getattr(args, name)}
    if options and config.get('default_scope', 'mmseg') != 'mmseg':
        sys.exit(f'error: --{next(iter(options))} is for segmentors')
    paths = args.checkpoint, args.out
    if not export(args.config, config, *paths, args.size, args.photo, **options):
        sys.exit(f'error: onnxruntime and torch differ; {args.out} was not written')
    print(f'wrote {args.out} ({args.out.stat().st_size / 1e6:.1f} MB)')


if __name__ == '__main__':
    run(main)

"""Parameters and operations of a config, or of published variants with the papers' figures.

Operations are multiply-adds of matrix products and convolutions, attention included, for one
image; activations are the numbers that these return. Norms, activation functions, softmax and
additions are not counted, nor are heads of detectors of two stages, whose operations depend on the
detected boxes.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from mmengine.analysis import ActivationAnalyzer
from mmengine.registry import MODELS, init_default_scope
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mmbixt.attention import by_definition
from mmbixt.checkpoints.sources import PUBLISHED, Published
from mmbixt.classification import classifier_config
from mmbixt.cli import read_config, run
from mmbixt.config import without_downloads

# comments around the table in docs/configs.md
START, END = '<!-- table: get_flops.py --update -->', '<!-- end of table -->'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('config', nargs='?', help='a config of mmseg or mmdet, a file or PACKAGE::PATH')
    add('--shape', type=int, nargs=2, default=(512, 512), metavar=('H', 'W'), help='image size')
    text = 'replace the table of published variants in this file, docs/configs.md'
    add('--update', type=Path, metavar='FILE', help=text)
    args = parser.parse_args()
    if not (args.config or args.update):
        parser.error('a config or --update is required')
    return args


def count_macs(part: nn.Module, x: Any) -> int:
    """Multiply-adds of a call, of attentions by their definition."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH), by_definition():
        part(x)
    return counter.get_total_flops() // 2


def count_activations(part: nn.Module, x: Any) -> int:
    """Numbers that the matrix products and convolutions of a call return, as fvcore counts them."""
    with torch.no_grad(), by_definition():
        counter = ActivationAnalyzer(part, (x,)).tracer_warnings('none')
        counter.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        return counter.total()


def build_without_memory(config: dict) -> nn.Module:
    with torch.device('meta'):
        return MODELS.build(config).eval()


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def measure_backbone(config: dict, side: int) -> tuple[int, int]:
    """Parameters and multiply-adds of a backbone on a square image."""
    backbone = build_without_memory(config)
    image = torch.empty(1, 3, side, side, device='meta')
    return count_parameters(backbone), count_macs(backbone, image)


def measure_classifier(model: Published) -> tuple[int, int]:
    """Parameters and multiply-adds of a published classifier at 224 x 224."""
    init_default_scope('mmpretrain')
    whole = build_without_memory(classifier_config(model.backbone))
    image = torch.empty(1, 3, 224, 224, device='meta')
    return count_parameters(whole), count_macs(whole, image)


def make_row(model: Published) -> list[str]:
    """Name, figures of the backbone, figures of the classifier and of the paper."""
    params, macs = measure_backbone({**model.backbone, **dict(model.at_512)}, 512)
    whole_params, whole_macs = measure_classifier(model)
    return [
        f'`{model.name}`',
        f'{params / 1e6:.2f}',
        f'{macs / 1e9:.1f}',
        f'{whole_params / 1e6:.2f}' + (f' ({model.params})' if model.params else ''),
        f'{whole_macs / 1e9:.2f}' + (f' ({model.gmacs})' if model.gmacs else ''),
    ]


HEADER = ['model', 'M params', 'G at 512', 'classifier: M params (paper)', 'G at 224 (paper)']


def make_table() -> str:
    """A Markdown table of the published variants whose operations a paper gives."""
    models = [make_row(model) for model in PUBLISHED if model.gmacs]
    rows = [HEADER, ['---'] + ['---:'] * (len(HEADER) - 1), *models]
    return '\n'.join(f'| {" | ".join(row)} |' for row in rows)


def update(path: Path) -> None:
    """Replace the table in a file, between START and END."""
    before, after = path.read_text().split(START)[0], path.read_text().split(END)[-1]
    path.write_text(f'{before}{START}\n{make_table()}\n{END}{after}')


def parts_of(model: nn.Module, height: int, width: int) -> dict[str, tuple[nn.Module, Any]]:
    """The parts of a model, and all of it, each with its input for an image."""
    channels = getattr(model.backbone, 'in_channels', 3)
    image = torch.zeros(1, channels, height, width, device=next(model.parameters()).device)
    parts = {'backbone': (model.backbone, image)}
    if model.with_neck:
        with torch.no_grad():
            parts['neck'] = model.neck, model.backbone(image)
    if not hasattr(model, 'roi_head'):  # its operations depend on the detected boxes
        parts['model'] = model, image
    return parts


def measure_model(model: nn.Module, height: int, width: int) -> list[tuple[str, int, int]]:
    """(part, parameters, multiply-adds) of the parts of a model, in eval mode, and of all of it."""
    parts = parts_of(model, height, width).items()
    return [(name, count_parameters(part), count_macs(part, x)) for name, (part, x) in parts]


def main() -> None:
    args = parse_args()
    if args.update:
        update(args.update)
    else:
        cfg = read_config(args.config)
        init_default_scope(cfg.default_scope)
        print(f'{args.config} at {args.shape[0]} x {args.shape[1]}, one image')
        model = MODELS.build(without_downloads(cfg.model)).eval()
        for name, (part, x) in parts_of(model, *args.shape).items():
            print(
                f'{name:<10}{count_parameters(part) / 1e6:10.2f} M parameters'
                f'{count_macs(part, x) / 1e9:10.2f} G multiply-adds'
                f'{count_activations(part, x) / 1e6:10.2f} M activations'
            )


if __name__ == '__main__':
    run(main)

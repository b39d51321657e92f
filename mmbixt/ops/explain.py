"""Print which path each op of a config's backbone takes, and why.

    python -m mmbixt.ops.explain CONFIG [--size 512x512] [--device cuda] [--amp bfloat16]

Nothing is computed: tensors have only a shape, a dtype and a device, which need not exist.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mmbixt.ops.dispatch import Choice, ops_path, recorded_choices

SIZE = (512, 512)


def image_size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r'([1-9][0-9]{0,4})(?:x([1-9][0-9]{0,4}))?', text)
    if match is None:
        raise argparse.ArgumentTypeError(f'{text!r} is not a size such as 512 or 480x640')
    return int(match[1]), int(match[2] or match[1])


@contextmanager
def autocast(device: str, dtype: torch.dtype | None) -> Iterator[None]:
    """``torch.autocast``, also for devices that the machine does not have."""
    if dtype is None:
        yield
        return
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


def choices_of(
    backbone: dict,
    size: tuple[int, int] = SIZE,
    device: str = 'cpu',
    amp: torch.dtype | None = None,
    inference: bool = False,
) -> list[Choice]:
    """The choices in one forward pass of a backbone on one image (H,W), in order.

    The machine need not have the device. ``amp`` is the dtype of autocast, or None without it.
    """
    from mmengine.registry import MODELS

    with FakeTensorMode(), torch.device(device):
        network = MODELS.build({**backbone, 'init_cfg': None}).train(not inference)
        image = torch.empty(1, network.in_channels, *size)
        gradients = torch.set_grad_enabled(not inference)
        with autocast(device, amp), gradients, recorded_choices() as choices:
            network(image)
    return choices


def table(choices: list[Choice]) -> str:
    """One line for each op, path and reason, with the number of calls and the first shape."""
    times = Counter(choice[:3] for choice in choices)
    shapes = {choice[:3]: 'x'.join(map(str, choice.shape)) for choice in reversed(choices)}
    rows = [('op', 'path', 'times', 'first shape', 'because')]
    for (op, path, why), count in times.items():
        rows.append((op, path, str(count), shapes[op, path, why], why))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ('  '.join([*map(str.ljust, row[:4], widths), row[4]]) for row in rows)
    return '\n'.join(lines)


def backbone_of(config: str) -> dict:
    """The config of the backbone in a config file, or in one of our configs by its name."""
    from mmbixt.cli import read_config

    backbone = (read_config(config).get('model') or {}).get('backbone') or {}
    kind = backbone.get('type') if isinstance(backbone, dict) else None
    name = f'{kind.__module__}.{kind.__name__}' if isinstance(kind, type) else str(kind)
    if not name.startswith('mmbixt.'):
        raise ValueError(f'its backbone is not one of mmbixt, but {name}')
    return {**backbone, 'type': f'mmbixt.{name.rpartition(".")[2]}'}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m mmbixt.ops.explain', description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument('config', help='file or name of a config with a backbone of mmbixt')
    text = 'size of the image, H or HxW (default: 512)'
    parser.add_argument('--size', type=image_size, default=SIZE, help=text)
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    parser.add_argument('--amp', choices=['bfloat16', 'float16'], help='mixed precision')
    parser.add_argument('--inference', action='store_true', help='inference, not training')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    size, device, amp = args.size, args.device, args.amp
    dtype = amp and getattr(torch, amp)
    try:
        backbone = backbone_of(args.config)
        choices = choices_of(backbone, size, device, dtype, args.inference)
    except Exception as error:  # configs can raise any error
        print(f'{args.config}: {error or type(error).__name__}', file=sys.stderr)
        sys.exit(2)
    print(
        f'{backbone["type"]}, one image of {size[0]} x {size[1]} pixels on {device}, '
        f'{"inference" if args.inference else "training"}, '
        f'{f"autocast to {amp}" if amp else "float32"}, MMBIXT_OPS={ops_path()}'
    )
    print(table(choices) if choices else 'It calls none of the operators of mmbixt.ops.')


if __name__ == '__main__':
    main()

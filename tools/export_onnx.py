"""Export a segmentor to ONNX, from pixels to labels or logits, and check it in onnxruntime.

The file takes images as OpenCV reads them (B,3,H,W), float32 from 0 to 255, BGR. Normalisation,
padding, the network and the resizing to the size of the image are in the file. It is compared with
the model itself, as tools/test.py runs it, and kept only where the two agree.

Two parts of mmseg are rewritten for the export, with the same weights and results: Upsample (in
FPNHead), whose sizes are products of floats, and the adaptive pooling of UPerHead and PSPHead.
"""

import argparse
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import init_default_scope
from mmengine.runner import CheckpointLoader
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.functional import interpolate, pad

from mmbixt.checkpoints.loader import TRUST
from mmbixt.checkpoints.state_dict import load_whole_state, unwrap
from mmbixt.cli import check_framework, read_config, run
from mmbixt.layers import RoutingAttention
from mmbixt.ops.padding import crop, padding_to_multiple

PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
TOLERANCE = 1e-4  # of the largest logit
EQUAL_LABELS = 0.999  # share; where two classes are as likely, rounding decides
ROUTING_GAP = 1e-4  # of the largest score; rounding may choose another route below it
EXAMPLE = (2, 480, 544)  # batch, height, width
CHECKED = ((1, 480, 544), (2, 512, 512), (3, 225, 290), (1, 640, 352))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/export_onnx.py configs/bixt/semfpn_bixt_ti_ade20k.py '
        'iter_80000.pth bixt.onnx --dynamic',
    )
    parser.add_argument('config', help='config of a segmentor (mmseg)')
    parser.add_argument('checkpoint', help='checkpoint of the whole segmentor')
    parser.add_argument('out', type=Path, help='file to write, NAME.onnx')
    parser.add_argument(
        '--dynamic', action='store_true', help='for any number and size of images, not one size'
    )
    parser.add_argument(
        '--size',
        type=int,
        nargs=2,
        default=EXAMPLE[1:],
        metavar=('H', 'W'),
        help='of the image that is exported with; without --dynamic the only one (480 544)',
    )
    parser.add_argument('--logits', action='store_true', help='return logits, not labels')
    parser.add_argument('--trust-checkpoint', action='store_true', help='as in tools/test.py')
    args = parser.parse_args()
    if args.trust_checkpoint:
        os.environ[TRUST] = '1'
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        parser.error(f'{", ".join(missing)} missing; install with: pip install "mmbixt[export]"')
    if args.out.suffix != '.onnx':
        parser.error(f'{args.out}: the name of the file must end in .onnx.')
    if not args.out.parent.is_dir():
        parser.error(f'{args.out.parent} is not a folder; make it first.')
    if not Path(args.checkpoint).is_file():
        parser.error(f'{args.checkpoint}: there is no such checkpoint.')
    if min(args.size) < 64:
        parser.error('--size must be at least 64 pixels on each side.')
    return args


# --- The model ------------------------------------------------------------------------------------


class Pooling(nn.Module):
    """``nn.AdaptiveAvgPool2d(n)`` as two products, since ONNX pools sizes that it knows alone.

    Cell i of n is the mean of the pixels from ``floor(i*H/n)`` to ``ceil((i+1)*H/n)``.
    """

    def __init__(self, cells: int) -> None:
        super().__init__()
        self.cells = cells

    def forward(self, x: Tensor) -> Tensor:
        """(B,C,H,W) to (B,C,n,n)."""
        rows, columns = (self._weights(side, x) for side in x.shape[2:])
        return rows @ x @ columns.transpose(0, 1)

    def _weights(self, side: int, x: Tensor) -> Tensor:
        """(n,side), each row summing to one."""
        cell = torch.arange(self.cells, device=x.device)[:, None]
        first = cell * side // self.cells
        end = ((cell + 1) * side + self.cells - 1) // self.cells
        pixel = torch.arange(side, device=x.device)
        return ((pixel >= first) & (pixel < end)).to(x.dtype) / (end - first)


class Upsampling(nn.Module):
    """mmseg's ``Upsample``, with sizes that are whole numbers all the way."""

    def __init__(self, factor: int, mode: str, align_corners: bool | None) -> None:
        super().__init__()
        self.factor, self.mode, self.align_corners = factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        size = [side * self.factor for side in x.shape[2:]]
        return interpolate(x, size, mode=self.mode, align_corners=self.align_corners)


def rewrite(model: nn.Module) -> list[str]:
    """Replace what does not export, in place; returns the names of what was replaced."""
    from mmseg.models.utils import Upsample

    replaced = []
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.AdaptiveAvgPool2d) and isinstance(module.output_size, int):
            new = Pooling(module.output_size)
        elif isinstance(module, Upsample) and not module.size and module.scale_factor % 1 == 0:
            new = Upsampling(int(module.scale_factor), module.mode, module.align_corners)
        else:
            continue
        parent, _, child = name.rpartition('.')
        setattr(model.get_submodule(parent), child, new)
        replaced.append(name)
    return replaced


class Exported(nn.Module):
    """A segmentor with its preprocessing and postprocessing."""

    def __init__(self, model: nn.Module, logits: bool) -> None:
        super().__init__()
        self.model = model
        self.logits = logits
        prepare = model.data_preprocessor
        self.padding = prepare.test_cfg or {}
        names = 'channel_conversion', '_channel_conversion'  # in mmseg and in its fork
        self.is_swapped = next(getattr(prepare, name) for name in names if hasattr(prepare, name))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B,3,H,W) to labels (B,H,W), or logits (B,classes,H,W)."""
        prepare = self.model.data_preprocessor
        x = images.flip(1) if self.is_swapped else images
        if prepare._enable_normalize:
            x = (x - prepare.mean) / prepare.std
        height, width = images.shape[2:]
        if divisor := self.padding.get('size_divisor'):
            bottom, right = (padding_to_multiple(side, divisor) for side in (height, width))
            x = pad(x, (0, right, 0, bottom), value=float(prepare.pad_val))
        head = self.model.decode_head
        out = head(self.model.extract_feat(x))
        out = interpolate(out, x.shape[2:], mode='bilinear', align_corners=head.align_corners)
        if divisor:
            out = crop(out.permute(0, 2, 3, 1), height, width).permute(0, 3, 1, 2)
        return out if self.logits else out.argmax(1)


def load(config: Config, checkpoint: str) -> nn.Module:
    """The segmentor of a config with the weights of a file."""
    from mmseg.registry import MODELS

    init_default_scope('mmseg')
    model = revert_sync_batchnorm(MODELS.build(config.model))
    load_whole_state(model, unwrap(CheckpointLoader.load_checkpoint(checkpoint, 'cpu')))
    return model.eval()


def check_config(config: Config, path: str) -> None:
    """Stop where the tool cannot export a model."""
    check_framework(config, path)
    scope, mode = config.get('default_scope'), config.model.get('test_cfg', {}).get('mode', 'whole')
    kind = config.model.type.rpartition('.')[2]
    if scope != 'mmseg' or kind != 'EncoderDecoder':
        raise SystemExit(
            f'{path} is a {kind} of {scope}. This tool exports segmentors of mmseg (EncoderDecoder)'
            '; detectors and classifiers it does not. Their backbones export: see docs/export.md.'
        )
    if mode != 'whole' or (config.model.data_preprocessor.get('test_cfg') or {}).get('size'):
        raise SystemExit(
            f"{path}: the tool exports inference on whole images, test_cfg=dict(mode='whole'), and "
            'padding to a size_divisor; the config asks for windows or for padding to one size.'
        )
    if (
        config.model.decode_head.get('num_classes') == 1
        or config.model.decode_head.get('out_channels') == 1
    ):
        raise SystemExit(f'{path}: a head of one channel and a threshold is not supported.')


# --- The check ------------------------------------------------------------------------------------


class Agreement(NamedTuple):
    """How far a file is from its model for one image.

    Attributes:
        difference: of the largest logit; None for labels.
        equal: share of equal labels.
        gap: the smallest of BiFormer's routing gaps; infinite for other models.
    """

    difference: float | None
    equal: float
    gap: float

    @property
    def is_right(self) -> bool:
        return self.equal >= EQUAL_LABELS and (self.difference or 0.0) <= TOLERANCE

    def __str__(self) -> str:
        off = '' if self.difference is None else f'largest difference {self.difference:.1e}, '
        gap = '' if self.is_right else f', routing gap {self.gap:.1e}'
        return f'{off}equal labels {100 * self.equal:.3f} %{gap if self.gap < np.inf else ""}'


def predict(model: nn.Module, images: Tensor) -> Tensor:
    """Logits (B,classes,H,W) of the model as mmseg runs it, its preprocessing included."""
    from mmseg.structures import SegDataSample

    size = tuple(images.shape[2:])
    info = dict(ori_shape=size, img_shape=size, pad_shape=size)
    samples = [SegDataSample(metainfo=dict(info)) for _ in images]
    out = model.test_step(dict(inputs=list(images), data_samples=samples))
    return torch.stack([sample.seg_logits.data for sample in out])


@contextmanager
def recorded_gaps(model: nn.Module) -> Iterator[list[Tensor]]:
    """The routing gaps (B,) of each layer of a BiFormer that runs within the block."""
    gaps: list[Tensor] = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, x: gaps.append(layer.routing_gap(*x)))
        for layer in model.modules()
        if isinstance(layer, RoutingAttention)
    ]
    yield gaps
    for hook in hooks:
        hook.remove()


def compare(session, model: nn.Module, images: Tensor, logits: bool) -> list[Agreement]:
    """The file and the model on the same images."""
    with recorded_gaps(model) as gaps:
        expected = predict(model, images)
    gap = torch.stack([torch.full((len(images),), torch.inf), *gaps]).amin(0).tolist()
    (actual,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    wanted = (len(images), *((expected.shape[1],) if logits else ()), *images.shape[2:])
    if actual.shape != wanted:
        raise SystemExit(f'Nothing was written: it returns {actual.shape}, not {wanted}.')
    labels, difference = actual, [None] * len(images)
    if logits:
        labels = actual.argmax(1)
        largest = np.abs(actual - expected.numpy()).max((1, 2, 3))
        difference = (largest / expected.abs().max().item()).tolist()
    equal = (labels == expected.argmax(1).numpy()).mean((1, 2)).tolist()
    return [Agreement(*image) for image in zip(difference, equal, gap, strict=True)]


def smooth_images(batch: int, height: int, width: int) -> Tensor:
    """Random images that are no noise, (B,3,H,W) from 0 to 255."""
    generator = torch.Generator().manual_seed(height * width)
    coarse = 255 * torch.rand(batch, 3, height // 16 + 2, width // 16 + 2, generator=generator)
    return interpolate(coarse, (height, width), mode='bicubic').clamp(0, 255)


def export(model: nn.Module, size: tuple[int, int], dynamic: bool, file: Path) -> None:
    """Write a file. TorchScript's exporter (dynamo=False) is not offered: it fixes sizes."""
    example = smooth_images(EXAMPLE[0] if dynamic else 1, *size)
    shapes = ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},) if dynamic else None
    names = dict(input_names=['images'], output_names=['logits' if model.logits else 'labels'])
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # of torch about its own code
        program = torch.onnx.export(
            model, (example,), dynamo=True, dynamic_shapes=shapes, verbose=False, **names
        )
    program.save(file, external_data=False)


@torch.no_grad()
def main() -> None:
    args = parse_args()
    config = read_config(args.config)
    check_config(config, args.config)
    import onnxruntime

    model = load(config, args.checkpoint)
    changed = Exported(load(config, args.checkpoint), args.logits).eval()
    if names := rewrite(changed.model):
        print(f'rewritten for the export: {", ".join(names)}')
    file = args.out.with_name(f'.{args.out.name}.unchecked')
    try:
        export(changed, tuple(args.size), args.dynamic, file)
        session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
        right, rerouted, wrong = 0, 0, []
        for batch, *size in CHECKED if args.dynamic else [(1, *args.size)]:
            for found in compare(session, model, smooth_images(batch, *size), args.logits):
                print(f'{size[0]} x {size[1]}, {batch} at once: {found}')
                if found.is_right:
                    right += 1
                elif found.gap < ROUTING_GAP:
                    rerouted += 1
                else:
                    wrong.append((batch, *size))
        if rerouted:
            print(f'{rerouted} images may have taken another route: gaps below {ROUTING_GAP:.0e}')
        if wrong or not right:
            raise SystemExit(
                f'Nothing was written: onnxruntime gives other results at {wrong or CHECKED}.'
            )
        file.replace(args.out)
    finally:
        file.unlink(missing_ok=True)
    print(f'wrote {args.out}')


if __name__ == '__main__':
    run(main)

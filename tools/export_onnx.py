"""Export a segmentor to ONNX, from pixels to labels or logits, and check it in onnxruntime.

The input `images` is float32 (batch,3,height,width): values from 0 to 255, channels in the order
blue, green, red, as OpenCV reads them. The output `labels` is int64 (batch,height,width), or with
--logits `logits`, float32 (batch,classes,height,width). The file includes normalisation, padding,
the network, the resizing of its output to the size of the image and, as metadata, the names and
colours of the classes. It is compared with the model, as tools/test.py runs it, and kept only if
both agree. docs/export.md shows a program that runs it without torch.

Two parts of mmseg are rewritten for the export, with the same weights and results: Upsample (in
FPNHead), whose sizes are products of floats, and the adaptive pooling of UPerHead and PSPHead.
"""

import argparse
import copy
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import init_default_scope
from mmengine.runner import CheckpointLoader
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from mmbixt.attention import RoutingAttention
from mmbixt.check.names import registered
from mmbixt.checkpoints.loader import TRUST
from mmbixt.checkpoints.state_dict import load_whole_state
from mmbixt.cli import check_framework, read_config, run
from mmbixt.config import type_name, within
from mmbixt.files import named
from mmbixt.layers.padding import crop, padding_to_multiple
from mmbixt.progress import phase
from mmbixt.version import __version__

PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
TOLERANCE = 1e-4  # of the largest logit
EQUAL_LABELS = 0.999  # share; rounding decides between equally likely classes
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
        help='of the example image; without --dynamic the only possible size (480 544)',
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
    """``nn.AdaptiveAvgPool2d(n)`` as two products, because ONNX has it for fixed sizes only.

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
    """mmseg's ``Upsample``, with sizes that are computed as integers."""

    def __init__(self, factor: int, mode: str, align_corners: bool | None) -> None:
        super().__init__()
        self.factor, self.mode, self.align_corners = factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        size = [side * self.factor for side in x.shape[2:]]
        return interpolate(x, size, mode=self.mode, align_corners=self.align_corners)


def rewrite(model: nn.Module) -> list[str]:
    """Replace modules that cannot be exported, in place; returns their names."""
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


def build(config: Config, checkpoint: Mapping[str, Any]) -> nn.Module:
    """The segmentor of a config with the weights of a checkpoint."""
    from mmseg.registry import MODELS

    init_default_scope('mmseg')
    model = revert_sync_batchnorm(MODELS.build(config.model))
    load_whole_state(model, checkpoint)
    return model.eval()


def about(config: Config, path: str, checkpoint: Mapping[str, Any]) -> dict[str, str]:
    """The metadata of the file: texts, and JSON where there are several values.

    Names and colours of the classes are from the checkpoint, or else from the config's test set.
    """
    dataset = within(config, 'test_dataloader', 'dataset')
    kind = registered('mmseg').get(type_name(dataset).rpartition('.')[2])
    trained = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
    tested = {**getattr(kind, 'METAINFO', {}), **(dataset.get('metainfo') or {})}
    lists = {}
    for key in ('classes', 'palette'):
        for found in (trained.get(key), tested.get(key)):
            if len(found or ()) == config.model.decode_head.num_classes:
                lists.setdefault(key, found)
    lists['resize'] = [x for x in dataset.get('pipeline', []) if 'Resize' in str(x['type'])]
    texts = dict(
        config=Path(path).stem,
        mmbixt_version=__version__,
        input='float32 (batch,3,height,width), 0 to 255, channels blue, green, red',
    )
    return texts | {key: json.dumps(values) for key, values in lists.items()}


def check_config(config: Config, path: str) -> None:
    """Stop where the tool cannot export a model."""
    check_framework(config, path)
    model, scope = config.model, config.get('default_scope')
    kind, head = type_name(model).rpartition('.')[2], within(model, 'decode_head')
    if scope != 'mmseg' or kind != 'EncoderDecoder':
        reason = (
            f'is a {kind} of {scope}. This tool exports segmentors of mmseg (EncoderDecoder), not '
            'detectors and classifiers. For their backbones see docs/export.md'
        )
    elif within(model, 'test_cfg').get('mode', 'whole') != 'whole':
        reason = "predicts in windows; the tool exports whole images, test_cfg=dict(mode='whole')"
    elif within(model, 'data_preprocessor', 'test_cfg').get('size'):
        reason = 'pads images to one size; the tool exports padding to a size_divisor'
    elif (channels := within(model, 'backbone').get('in_channels', 3)) != 3:
        reason = f'is for images of {channels} channels; the tool exports models of three'
    elif 1 in (head.get('num_classes'), head.get('out_channels')):
        reason = 'has a head of one channel and a threshold, which is not supported'
    else:
        return
    raise SystemExit(f'{path} {reason}.')


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
        off = ''
        if self.difference is not None:
            off = f'largest difference {self.difference:.1e} of the largest logit, '
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
    """Random smooth images, (B,3,H,W) from 0 to 255."""
    generator = torch.Generator().manual_seed(height * width)
    coarse = 255 * torch.rand(batch, 3, height // 16 + 2, width // 16 + 2, generator=generator)
    return interpolate(coarse, (height, width), mode='bicubic').clamp(0, 255)


def export(
    model: nn.Module, size: tuple[int, int], dynamic: bool, metadata: dict[str, str], file: Path
) -> None:
    """Write a file. TorchScript's exporter (dynamo=False) is not offered: it fixes sizes."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    example = smooth_images(EXAMPLE[0] if dynamic else 1, *size)
    shapes = ({0: 'batch', 2: 'height', 3: 'width'},) if dynamic else None
    names = dict(input_names=['images'], output_names=['logits' if model.logits else 'labels'])
    logging.getLogger('onnxscript').setLevel(logging.ERROR)  # about parts that it does not optimise
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # of torch about its own code
        program = torch.onnx.export(
            model, (example,), dynamo=True, dynamic_shapes=shapes, verbose=False, **names
        )
    ClearMetadataAndDocStringPass()(program.model)  # each node has a stack trace of this machine
    program.model.metadata_props.update(metadata)
    with named(file):
        program.save(file, external_data=False)


def check(file: Path, model: nn.Module, sizes: Sequence[Sequence[int]], logits: bool) -> None:
    """Compare a file with its model on images of some sizes, and stop where it is wrong.

    Args:
        file: the ONNX file.
        model: the model, as mmseg runs it.
        sizes: batch, height and width.
        logits: whether the file returns logits.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    right, rerouted, wrong = 0, 0, []
    for batch, *size in sizes:
        found = compare(session, model, smooth_images(batch, *size), logits)
        for number, image in enumerate(found, 1):
            text = f'{size[0]} x {size[1]} pixels, image {number} of a batch of {batch}: {image}'
            print(f'onnxruntime and torch at {text}', flush=True)
            if image.is_right:
                right += 1
            elif image.gap < ROUTING_GAP:
                rerouted += 1
            else:
                wrong.append((batch, *size))
    if rerouted:
        print(
            f'{rerouted} of {sum(batch for batch, *_ in sizes)} images may have taken another '
            f'route: their routing gaps are below {ROUTING_GAP:.0e} (docs/export.md)'
        )
    if wrong or not right:
        raise SystemExit(
            'Nothing was written: onnxruntime gives other results than torch at (batch, height, '
            f'width) {", ".join(map(str, wrong or sizes))}.'
        )


@torch.no_grad()
def main() -> None:
    args = parse_args()
    config = read_config(args.config)
    check_config(config, args.config)
    phase(f'building {args.config} with the weights of {args.checkpoint}')
    checkpoint = CheckpointLoader.load_checkpoint(args.checkpoint, 'cpu')
    model = build(config, checkpoint)
    changed = Exported(copy.deepcopy(model), args.logits).eval()
    if names := rewrite(changed.model):
        print(f'rewritten for the export, with the same results: {", ".join(names)}')
    metadata = about(config, args.config, checkpoint)
    file = args.out.with_name(f'.{args.out.name}.unchecked')
    sizes = CHECKED if args.dynamic else [(1, *args.size)]
    try:
        phase('exporting to ONNX (large models take some minutes)')
        export(changed, tuple(args.size), args.dynamic, metadata, file)
        phase(f'checking: onnxruntime and torch on random images of {len(sizes)} sizes')
        check(file, model, sizes, args.logits)
        file.replace(args.out)
    finally:
        file.unlink(missing_ok=True)
    classes = json.loads(metadata.get('classes', '[]'))
    names = f'the names of {len(classes)} classes' if classes else 'no names of classes'
    print(f'wrote {args.out} ({args.out.stat().st_size / 1e6:.1f} MB), with {names}')


if __name__ == '__main__':
    run(main)

"""Export a segmentor to ONNX, from pixels to labels or logits, and check it in onnxruntime.

The input `images` is float32 (batch,3,height,width): values from 0 to 255, channels in the order
blue, green, red, as OpenCV reads them. The output `labels` is int64 (batch,height,width), or with
--logits `logits`, float32 (batch,classes,height,width). The file includes normalisation, padding,
the network, the resizing of its output to the size of the image and, as metadata, the names and
colours of the classes. It is compared with the model, as tools/test.py runs it on whole images, and
deleted if the two differ. tools/predict.py runs the file in windows (tiles). docs/export.md shows a
program that runs the file without torch, and how to export a backbone.

With --dynamic two parts of mmseg are replaced, with the same results: Upsample (in FPNHead), whose
sizes are products of floats, and the adaptive pooling of UPerHead and PSPHead.
"""

import argparse
import copy
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from mmbixt.attention import RoutingAttention
from mmbixt.cli import run
from mmbixt.config import read_config
from mmbixt.layers.sizes import crop, padding_to_multiple
from mmbixt.predict.networks import Segmentor
from mmbixt.version import __version__

# Limits of the check: of the largest logit, and share of equal labels. Rounding alone makes 1e-5;
# where BiFormer's scores of two regions are almost equal, it may choose another region.
LIMITS, LIMITS_OF_ROUTING = (1e-4, 0.999), (1e-2, 0.99)
EXAMPLE = (2, 480, 544)  # batch, height, width
CHECKED = ((1, 480, 544), (2, 512, 512), (3, 225, 290), (1, 640, 352))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/export_onnx.py configs/bixt/semfpn_bixt_ti_ade20k.py '
        'iter_80000.pth bixt.onnx --dynamic',
    )
    add = parser.add_argument
    add('config', help='config of a segmentor (mmseg)')
    add('checkpoint', help='checkpoint of the whole segmentor')
    add('out', type=Path, help='file to write, NAME.onnx')
    text = 'for any number and size of images, not one size'
    add('--dynamic', action='store_true', help=text)
    text = 'of the example image; without --dynamic the only possible size (480 544)'
    add('--size', type=int, nargs=2, default=EXAMPLE[1:], metavar=('H', 'W'), help=text)
    add('--logits', action='store_true', help='return logits, not labels')
    return parser.parse_args()


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


def replace_for_dynamic_sizes(model: nn.Module) -> None:
    """Replace modules that are exported for fixed sizes only, in place."""
    from mmseg.models.utils import Upsample

    for name, module in list(model.named_modules()):
        if isinstance(module, nn.AdaptiveAvgPool2d) and isinstance(module.output_size, int):
            new = Pooling(module.output_size)
        elif isinstance(module, Upsample) and not module.size and module.scale_factor % 1 == 0:
            options = dict(mode=module.mode, align_corners=module.align_corners)
            new = nn.Upsample(scale_factor=int(module.scale_factor), **options)
        else:
            continue
        parent, _, child = name.rpartition('.')
        setattr(model.get_submodule(parent), child, new)


class Exported(nn.Module):
    """A segmentor with its preprocessing and postprocessing."""

    def __init__(self, model: nn.Module, config: Config, logits: bool) -> None:
        super().__init__()
        self.model = model
        self.logits = logits
        self.prepare = dict(config.model.get('data_preprocessor') or {})
        self.divisor = (self.prepare.get('test_cfg') or {}).get('size_divisor')

    def forward(self, images: Tensor) -> Tensor:
        """Images (B,3,H,W) to labels (B,H,W), or logits (B,classes,H,W)."""
        prepare, head = self.prepare, self.model.decode_head
        x = images
        if prepare.get('bgr_to_rgb') or prepare.get('rgb_to_bgr'):
            x = x.flip(1)
        if prepare.get('mean'):
            x = (x - self.model.data_preprocessor.mean) / self.model.data_preprocessor.std
        height, width = images.shape[2:]
        if self.divisor:
            bottom, right = (padding_to_multiple(side, self.divisor) for side in (height, width))
            x = pad(x, (0, right, 0, bottom), value=float(prepare.get('pad_val', 0)))
        out = head(self.model.extract_feat(x))
        out = interpolate(out, x.shape[2:], mode='bilinear', align_corners=head.align_corners)
        if self.divisor:
            out = crop(out.permute(0, 2, 3, 1), height, width).permute(0, 3, 1, 2)
        return out if self.logits else out.argmax(1)


def about(config: Config, path: str, meta: Mapping[str, Any]) -> dict[str, str]:
    """The metadata of the file: texts, and JSON where there are several values."""
    values = {key: meta[key] for key in ('classes', 'palette') if meta.get(key)}
    pipeline = config.test_dataloader.dataset.get('pipeline', [])
    values['resize'] = [x for x in pipeline if 'Resize' in str(x['type'])]
    texts = dict(
        config=Path(path).stem,
        mmbixt_version=__version__,
        input='float32 (batch,3,height,width), 0 to 255, channels blue, green, red',
    )
    return texts | {key: json.dumps(value) for key, value in values.items()}


def export(
    model: nn.Module, size: tuple[int, int], dynamic: bool, metadata: dict[str, str], file: Path
) -> None:
    """Write a file."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    example = smooth_images(EXAMPLE[0] if dynamic else 1, *size)
    shapes = ({0: 'batch', 2: 'height', 3: 'width'},) if dynamic else None
    names = dict(input_names=['images'], output_names=['logits' if model.logits else 'labels'])
    program = torch.onnx.export(model, (example,), dynamo=True, dynamic_shapes=shapes, **names)
    ClearMetadataAndDocStringPass()(program.model)  # each node has a stack trace of this machine
    program.model.metadata_props.update(metadata)
    program.save(file, external_data=False)


# --- The check ------------------------------------------------------------------------------------


def smooth_images(batch: int, height: int, width: int) -> Tensor:
    """Random smooth images, (B,3,H,W) from 0 to 255."""
    generator = torch.Generator().manual_seed(height * width)
    coarse = 255 * torch.rand(batch, 3, height // 16 + 2, width // 16 + 2, generator=generator)
    return interpolate(coarse, (height, width), mode='bicubic').clamp(0, 255)


def predict(model: nn.Module, images: Tensor) -> np.ndarray:
    """Logits (B,classes,H,W) of the model as mmseg runs it, its preprocessing included."""
    from mmseg.structures import SegDataSample

    size = tuple(images.shape[2:])
    info = dict(ori_shape=size, img_shape=size, pad_shape=size)
    samples = [SegDataSample(metainfo=dict(info)) for _ in images]
    out = model.test_step(dict(inputs=list(images), data_samples=samples))
    return torch.stack([sample.seg_logits.data for sample in out]).numpy()


def agrees(
    actual: np.ndarray, expected: np.ndarray, logits: bool, limits: tuple[float, float]
) -> bool:
    """Print how far labels (B,H,W) or logits (B,K,H,W) are from the model's logits (B,K,H,W)."""
    labels, is_close = actual, True
    if logits:
        difference = np.abs(actual - expected).max() / np.abs(expected).max()
        labels, is_close = actual.argmax(1), difference <= limits[0]
        print(f'largest difference {difference:.1e} of the largest logit,', end=' ')
    equal = np.mean(labels == expected.argmax(1))
    print(f'equal labels {100 * equal:.3f} %', flush=True)
    return bool(is_close and equal >= limits[1])


def check(file: Path, model: nn.Module, sizes: Sequence[Sequence[int]], logits: bool) -> bool:
    """Whether a file and its model agree on images of all sizes (batch, height, width)."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    has_routes = any(isinstance(part, RoutingAttention) for part in model.modules())
    limits, results = LIMITS_OF_ROUTING if has_routes else LIMITS, []
    for batch, height, width in sizes:
        images = smooth_images(batch, height, width)
        (actual,) = session.run(None, {'images': images.numpy()})
        print(f'onnxruntime and torch, {batch} x {height} x {width} pixels:', end=' ')
        results.append(agrees(actual, predict(model, images), logits, limits))
    return all(results)


@torch.no_grad()
def main() -> None:
    args = parse_args()
    config = read_config(args.config)
    if config.get('default_scope') not in (None, 'mmseg'):
        sys.exit(f'error: {args.config} is not of a segmentor of mmseg')
    config.model.test_cfg = dict(mode='whole')
    segmentor = Segmentor(config, args.checkpoint, 'cpu', amp=False)
    model = segmentor.model
    exported = Exported(copy.deepcopy(model), config, args.logits).eval()
    if args.dynamic:
        replace_for_dynamic_sizes(exported.model)
    metadata = about(config, args.config, segmentor.meta)
    export(exported, tuple(args.size), args.dynamic, metadata, args.out)
    agrees_everywhere = False
    try:
        sizes = CHECKED if args.dynamic else [(1, *args.size)]
        agrees_everywhere = check(args.out, model, sizes, args.logits)
    finally:  # also if onnxruntime cannot run it
        if not agrees_everywhere:
            args.out.unlink()
    if not agrees_everywhere:
        sys.exit(f'error: onnxruntime and torch differ; {args.out} was deleted')
    print(f'wrote {args.out} ({args.out.stat().st_size / 1e6:.1f} MB)')


if __name__ == '__main__':
    run(main)

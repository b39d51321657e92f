"""A segmentor of mmseg, from pixels to labels or logits."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from mmbixt.export.files import normalise
from mmbixt.layers.sizes import crop, padding_to_multiple
from mmbixt.predict.networks import labels_of

# of the largest logit, and share of equal labels; rounding alone makes 1e-5
LIMITS, LIMITS_OF_ROUTING = (1e-4, 0.999), (1e-2, 0.99)


class ExportedSegmentor(nn.Module):
    """A segmentor with its preprocessing, on whole images.

    Args:
        model: of mmseg, in evaluation mode.
        config: of the model.
        dynamic: prepare it for images of any number and size.
        logits: return logits, not labels.
    """

    def __init__(
        self, model: nn.Module, config: Config, dynamic: bool = False, logits: bool = False
    ) -> None:
        super().__init__()
        self.model, self.logits = copy.deepcopy(model), logits
        self.prepare = dict(config.model.get('data_preprocessor') or {})
        self.divisor = (self.prepare.get('test_cfg') or {}).get('size_divisor')
        self.outputs = ['logits' if logits else 'labels']
        self.free = {0: 'batch', 2: 'height', 3: 'width'} if dynamic else None
        self.batch = 2 if dynamic else 1  # of the example: exporters take 1 for a constant
        if dynamic:
            replace_for_dynamic_sizes(self.model)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B,3,H,W) to labels (B,H,W), or logits (B,classes,H,W)."""
        head, (height, width) = self.model.decode_head, images.shape[2:]
        x = normalise(images, self.model, self.prepare)
        if self.divisor:
            bottom, right = (padding_to_multiple(side, self.divisor) for side in (height, width))
            x = pad(x, (0, right, 0, bottom), value=float(self.prepare.get('pad_val', 0)))
        out = head(self.model.extract_feat(x))
        out = interpolate(out, x.shape[2:], mode='bilinear', align_corners=head.align_corners)
        if self.divisor:
            out = crop(out.permute(0, 2, 3, 1), height, width).permute(0, 3, 1, 2)
        return out if self.logits else labels_of(out, head.threshold)

    def compare(
        self, outputs: Sequence[np.ndarray], model: nn.Module, images: Tensor, has_routes: bool
    ) -> tuple[str, bool]:
        """Compare outputs with what mmseg computes: a text, and if they agree."""
        (actual,), (expected, labels) = outputs, predict(model, images)
        most, least = LIMITS_OF_ROUTING if has_routes else LIMITS
        text, is_close = '', True
        if self.logits:
            difference = np.abs(actual - expected).max() / np.abs(expected).max()
            text = f'largest difference {difference:.1e} of the largest logit, '
            is_close = difference <= most
            actual = labels_of(torch.from_numpy(actual), model.decode_head.threshold).numpy()
        equal = np.mean(actual == labels)
        return f'{text}equal labels {100 * equal:.3f} %', bool(is_close and equal >= least)


def predict(model: nn.Module, images: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Logits (B,K,H,W) and labels (B,H,W) as mmseg computes them, preprocessing included."""
    from mmseg.structures import SegDataSample

    size = tuple(images.shape[2:])
    info = dict(ori_shape=size, img_shape=size, pad_shape=size)
    samples = [SegDataSample(metainfo=dict(info)) for _ in images]
    out = model.test_step(dict(inputs=list(images), data_samples=samples))
    logits = torch.stack([sample.seg_logits.data for sample in out]).numpy()
    return logits, torch.cat([sample.pred_sem_seg.data for sample in out]).numpy()


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
    """Replace, in place, modules that exporters accept for fixed sizes only."""
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

"""A segmentor of mmseg, from pixels to labels or logits."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from mmbixt.errors import UserError
from mmbixt.export.files import normalise
from mmbixt.layers.sizes import ceil_div
from mmbixt.predict.networks import labels_of

# of the largest logit, and share of equal labels; rounding alone makes 1e-5
LIMITS, LIMITS_OF_ROUTING = (1e-4, 0.999), (1e-2, 0.99)


class ExportedSegmentor(nn.Module):
    """A segmentor with its preprocessing, on whole images.

    Args:
        model: of mmseg, in evaluation mode.
        config: of the model.
        dynamic: prepare it for images of any size, not only of any number.
        logits: return logits, not labels.
    """

    batch = 2  # of the example: exporters take 1 for a constant

    def __init__(
        self, model: nn.Module, config: Config, dynamic: bool = False, logits: bool = False
    ) -> None:
        super().__init__()
        self.model, self.logits = copy.deepcopy(model), logits
        self.prepare = dict(config.model.get('data_preprocessor') or {})
        self.divisor = (self.prepare.get('test_cfg') or {}).get('size_divisor')
        self.outputs = ['logits' if logits else 'labels']
        self.free = {0: 'batch'}
        if dynamic:
            if not getattr(model.backbone, 'has_free_sizes', True):
                name = type(model.backbone).__name__
                raise UserError(f'{name} is exported for one height and width, without --dynamic.')
            self.free |= {2: 'height', 3: 'width'}
            free_upsampling(self.model)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B,3,H,W) to labels (B,H,W), or logits (B,classes,H,W)."""
        head, (height, width) = self.model.decode_head, images.shape[2:]
        x = normalise(images, self.model, self.prepare)
        if self.divisor:
            rows, columns = (ceil_div(side, self.divisor) for side in (height, width))
            padding = (0, columns * self.divisor - width, 0, rows * self.divisor - height)
            x = pad(x, padding, value=float(self.prepare.get('pad_val', 0)))
        out = head(self.model.extract_feat(x))
        out = interpolate(out, x.shape[2:], mode='bilinear', align_corners=head.align_corners)
        if self.divisor:
            out = pad(out, [-n for n in padding])  # exporters do not know the size of a slice
        return out if self.logits else labels_of(out, head.threshold)

    def compare(
        self, outputs: Sequence[np.ndarray], model: nn.Module, images: Tensor, has_routes: bool
    ) -> tuple[str, bool]:
        """Compare outputs with what mmseg computes: a text, and if they agree."""
        (actual,), (expected, labels) = outputs, predict(model, images)
        most, least = LIMITS_OF_ROUTING if has_routes else LIMITS
        if self.logits:
            difference = np.abs(actual - expected).max() / np.abs(expected).max()
            text = f'largest difference {difference:.1e} of the largest logit'
            return text, bool(difference <= most)
        equal = np.mean(actual == labels)
        return f'equal labels {100 * equal:.3f} %', bool(equal >= least)


def predict(model: nn.Module, images: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Logits (B,K,H,W) and labels (B,H,W) as mmseg computes them, preprocessing included."""
    from mmseg.structures import SegDataSample

    size = tuple(images.shape[2:])
    info = dict(ori_shape=size, img_shape=size, pad_shape=size)
    samples = [SegDataSample(metainfo=dict(info)) for _ in images]
    out = model.test_step(dict(inputs=list(images), data_samples=samples))
    logits = torch.stack([sample.seg_logits.data for sample in out]).numpy()
    return logits, torch.cat([sample.pred_sem_seg.data for sample in out]).numpy()


def free_upsampling(model: nn.Module) -> None:
    """Replace mmseg's ``Upsample``, in place: it rounds sizes, so that exporters take numbers."""
    from mmseg.models.utils import Upsample

    for parent in list(model.modules()):
        for name, part in parent.named_children():
            if isinstance(part, Upsample) and part.scale_factor:
                options = dict(mode=part.mode, align_corners=part.align_corners)
                parent.add_module(name, nn.Upsample(scale_factor=part.scale_factor, **options))

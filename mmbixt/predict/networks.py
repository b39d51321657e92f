"""Networks that compute the logits of tiles: segmentors of mmseg and ONNX files."""

import json
from collections.abc import Sequence

import torch
from mmengine.config import Config
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from mmbixt.predict.trained import load_trained


class TorchSegmentor:
    """A segmentor with the weights of a checkpoint, all of them, and the classes of its config."""

    tile = None  # any size of tiles

    def __init__(self, config: Config, checkpoint: str, device: str, amp: bool) -> None:
        from mmseg.models.decode_heads.decode_head import BaseDecodeHead

        model, self.meta = load_trained(config, checkpoint)
        self.model, head = model.to(device), model.decode_head
        head = head[-1] if isinstance(head, nn.ModuleList) else head  # of a cascade
        self.align_corners, self.threshold = model.align_corners, getattr(head, 'threshold', None)
        names, kind = ('predict_by_feat', 'predict'), type(head)
        inherits = [getattr(kind, x, None) is getattr(BaseDecodeHead, x) for x in names]
        self.has_logits, self.is_stock = inherits[0], all(inherits)
        self.device = torch.device(device)
        self.amp = dict(dtype=torch.bfloat16, enabled=amp)

    def prepare(self, tiles: Sequence[Tensor]) -> Tensor:
        """Inputs (B,C,H,W) of tiles of one size, which the data preprocessor may pad."""
        tiles = [tile.contiguous() for tile in tiles]
        data = dict(inputs=tiles, data_samples=[BaseDataElement() for _ in tiles])
        return self.model.data_preprocessor(data, False)['inputs']

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Logits (B,K,h,w), float32 on the CPU, of inputs (B,C,H,W).

        They have the head's resolution if it is an ordinary one.
        """
        with torch.autocast(self.device.type, **self.amp):
            if self.is_stock:
                return self.model.decode_head(self.model.extract_feat(x)).float().cpu()
            size = tuple(x.shape[2:])
            info = dict(img_shape=size, ori_shape=size, pad_shape=size)
            return self.model.encode_decode(x, [info] * len(x)).float().cpu()


class OnnxSegmentor:
    """A file of tools/export_onnx.py in onnxruntime; labels become one-hot logits."""

    align_corners, threshold = False, None

    def __init__(self, file: str) -> None:
        from onnxruntime import InferenceSession

        self.session = InferenceSession(file)
        about = self.session.get_modelmeta().custom_metadata_map
        self.meta = {key: json.loads(about[key]) for key in ('classes', 'palette') if key in about}
        sides = self.session.get_inputs()[0].shape[2:]
        self.tile = tuple(sides) if all(isinstance(side, int) for side in sides) else None
        self.has_logits = len(self.session.get_outputs()[0].shape) == 4

    def prepare(self, tiles: Sequence[Tensor]) -> Tensor:
        """Inputs (B,C,H,W), without padding: the file removes what it pads."""
        return torch.stack([*tiles]).float()

    def __call__(self, x: Tensor) -> Tensor:
        """Logits (B,K,H,W) of inputs (B,C,H,W), one after the other."""
        outputs = (self.session.run(None, dict(images=one[None].numpy()))[0] for one in x)
        out = torch.cat([torch.from_numpy(output) for output in outputs])
        if self.has_logits:
            return out
        one_hot = torch.zeros(len(x), len(self.meta['classes']), *out.shape[1:])
        return one_hot.scatter_(1, out[:, None], 1)


def labels_of(logits: Tensor, threshold: float | None) -> Tensor:
    """Labels (B,H,W) of logits (B,K,H,W), of which one alone is foreground or background."""
    if logits.shape[1] == 1:
        return (logits.sigmoid() > threshold).squeeze(1).long()
    return logits.argmax(1)

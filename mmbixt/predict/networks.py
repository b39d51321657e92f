"""Networks that compute the logits of tiles: segmentors of mmseg and ONNX files."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from mmengine.config import Config
from mmengine.structures import BaseDataElement
from torch import Tensor
from torch.nn.functional import one_hot

from mmbixt.predict.loading import load_trained


class Logits(NamedTuple):
    """The logits of a tile, float32 on the CPU."""

    values: Tensor  # (K,h,w)
    size: Sequence[int]  # (H,W) of the tile in pixels, with its padding


class Segmentor:
    """A segmentor with the weights of a checkpoint, all of them, and the classes of its config."""

    tile = None  # any size of tiles

    def __init__(self, config: Config, checkpoint: str, device: str, amp: bool) -> None:
        model, self.meta = load_trained(config, checkpoint)
        self.model = model.to(device)
        self.align_corners = model.align_corners
        self.threshold = getattr(model.decode_head, 'threshold', None)
        self.device = torch.device(device)
        self.has_graph = self.device.type == 'cuda'
        self.graph: Callable[[Tensor], Tensor] | None = None
        # a graph casts the weights each time
        self.amp = dict(dtype=torch.bfloat16, enabled=amp, cache_enabled=False)

    def prepare(self, tiles: Sequence[Tensor]) -> Tensor:
        """Inputs (B,C,H,W) of tiles of one size, which the data preprocessor may pad."""
        data = dict(inputs=[*tiles], data_samples=[BaseDataElement() for _ in tiles])
        return self.model.data_preprocessor(data, False)['inputs']

    @torch.no_grad()
    def __call__(self, tiles: Sequence[Tensor], batch: int = 0) -> Iterable[Logits]:
        """Logits of tiles (C,H,W).

        Args:
            tiles: of one size, but the last one may be narrower.
            batch: the largest number of tiles, if all have one size; they run in a CUDA graph.
        """
        if tiles[-1].shape != tiles[0].shape:
            return [*self(tiles[:-1]), *self(tiles[-1:])]
        x = self.prepare([*tiles, *tiles[-1:] * (batch - len(tiles))])
        if batch and not self.graph:
            with torch.cuda.device(x.device):
                self.graph = torch.cuda.make_graphed_callables(self.logits, (x.clone(),))
        run = self.graph if batch else self.logits
        return [Logits(values, x.shape[2:]) for values in run(x)[: len(tiles)].float().cpu()]

    def logits(self, x: Tensor) -> Tensor:
        """Logits of images (B,C,H,W), at the head's resolution if it is an ordinary one."""
        from mmseg.models.decode_heads.decode_head import BaseDecodeHead

        head, model = self.model.decode_head, self.model
        own = (getattr(type(head), name, None) for name in ('predict', 'predict_by_feat'))
        with torch.autocast(self.device.type, **self.amp):
            if (*own,) == (BaseDecodeHead.predict, BaseDecodeHead.predict_by_feat):
                return head(model.extract_feat(x))
            size = tuple(x.shape[2:])
            info = dict(img_shape=size, ori_shape=size, pad_shape=size)
            return model.encode_decode(x, [info] * len(x))


class OnnxFile:
    """A file of tools/export_onnx.py in onnxruntime; labels become one-hot logits."""

    align_corners, threshold, has_graph = False, None, False

    def __init__(self, file: str) -> None:
        from onnxruntime import InferenceSession

        self.session = InferenceSession(file)
        about = self.session.get_modelmeta().custom_metadata_map
        self.meta = {key: json.loads(about[key]) for key in ('classes', 'palette') if key in about}
        sides = self.session.get_inputs()[0].shape[2:]
        self.tile = tuple(sides) if all(isinstance(side, int) for side in sides) else None

    def prepare(self, tiles: Sequence[Tensor]) -> Tensor:
        """Inputs (B,C,H,W), without padding: the file removes what it pads."""
        return torch.stack([*tiles])

    def __call__(self, tiles: Sequence[Tensor], batch: int = 0) -> Iterable[Logits]:
        """Logits of tiles (C,H,W), one after the other."""
        for tile in tiles:
            out = self.session.run(None, dict(images=tile[None].float().numpy()))
            [out] = torch.from_numpy(out[0])
            if out.ndim == 2:
                out = one_hot(out, len(self.meta['classes'])).permute(2, 0, 1).float()
            yield Logits(out, tile.shape[1:])

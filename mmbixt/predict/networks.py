"""What computes the logits of tiles: a segmentor of mmseg, or a file of tools/export_onnx.py."""

import json
from collections.abc import Callable, Sequence

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import Tensor
from torch.nn.functional import one_hot

from mmbixt.check.built import classes_of, head_problems, order_problems
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import load_whole_state
from mmbixt.config import ConfigError, data_sets


class Segmentor:
    """A segmentor with the weights of a checkpoint, all of them, and the classes of its config.

    Call it with tiles (C,H,W) of one size; it returns logits (B,K,h,w), float32 on the CPU, and the
    size (H',W') of what they cover, which is larger where the data preprocessor pads.
    """

    tile = None  # any size

    def __init__(self, config: Config, checkpoint: str, device: str, amp: bool) -> None:
        init_default_scope(config.get('default_scope', 'mmseg'))
        state = load(checkpoint, 'cpu')
        model = revert_sync_batchnorm(MODELS.build(config.model))
        load_whole_state(model, state)
        trained = dict((state.get('meta') or {}).get('dataset_meta') or {})
        _, dataset = next(data_sets(config, 'test'))
        dataset = DATASETS.build({**dataset, 'lazy_init': True, 'pipeline': []})
        known = tuple(trained.get('classes') or ()), classes_of(dataset)
        problems = [
            *order_problems(dict(zip(('training', 'test'), known, strict=True))),
            *head_problems(model, dict(test=known[1])),
        ]
        if problems:
            raise ConfigError('\n'.join(problems))
        self.model = model.to(device).eval()
        self.meta = {**dataset.metainfo, **trained}
        self.align_corners = model.align_corners
        self.threshold = getattr(model.decode_head, 'threshold', None)
        self.device = torch.device(device)
        self.has_graph = self.device.type == 'cuda'
        self.graphs: dict[torch.Size, Callable] = {}
        # a graph casts the weights each time
        self.amp = dict(dtype=torch.bfloat16, enabled=amp, cache_enabled=False)

    @torch.no_grad()
    def __call__(self, tiles: Sequence[Tensor], is_part: bool) -> tuple[Tensor, tuple[int, int]]:
        """``is_part`` if the tiles are parts of an image, which have one size."""
        samples = [BaseDataElement() for _ in tiles]
        data = dict(inputs=list(tiles), data_samples=samples)
        x = self.model.data_preprocessor(data, False)['inputs']
        run = self.logits
        if is_part and self.has_graph:
            if x.shape not in self.graphs:
                self.graphs[x.shape] = in_graph(self.logits, x)
            run = self.graphs[x.shape]
        return run(x).float().cpu(), tuple(x.shape[2:])

    def logits(self, x: Tensor) -> Tensor:
        """Logits of images (B,C,H,W), at the head's resolution if it is an ordinary one."""
        from mmseg.models.decode_heads.decode_head import BaseDecodeHead

        head, model = self.model.decode_head, self.model
        own = (getattr(type(head), name, None) for name in ('predict', 'predict_by_feat'))
        ordinary = BaseDecodeHead.predict, BaseDecodeHead.predict_by_feat
        with torch.autocast(self.device.type, **self.amp):
            if tuple(own) == ordinary:
                return head(model.extract_feat(x))
            size = tuple(x.shape[2:])
            info = dict(img_shape=size, ori_shape=size, pad_shape=size)
            return model.encode_decode(x, [info] * len(x))


def in_graph(function: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[Tensor], Tensor]:
    """A function in a CUDA graph, for tensors of the shape of ``x``."""
    x = x.clone()
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):  # libraries initialise outside of the graph
        for _ in range(3):
            function(x)
    torch.cuda.current_stream().wait_stream(other)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function(x)

    def replay(new: Tensor) -> Tensor:
        x.copy_(new)
        graph.replay()
        return out

    return replay


class OnnxFile:
    """A file of tools/export_onnx.py in onnxruntime; its labels count as logits 0 and 1."""

    has_graph, align_corners, threshold = False, False, None

    def __init__(self, file: str) -> None:
        from onnxruntime import InferenceSession

        self.session = InferenceSession(file)
        about = self.session.get_modelmeta().custom_metadata_map
        self.meta = {key: json.loads(about[key]) for key in ('classes', 'palette') if key in about}
        sides = self.session.get_inputs()[0].shape[2:]
        self.tile = tuple(sides) if all(isinstance(side, int) for side in sides) else None

    def __call__(self, tiles: Sequence[Tensor], is_part: bool) -> tuple[Tensor, tuple[int, int]]:
        """Logits (B,K,H,W) of tiles (C,H,W), and their size."""
        images = [tile[None].float().numpy() for tile in tiles]
        out = torch.cat(
            [torch.from_numpy(self.session.run(None, dict(images=x))[0]) for x in images]
        )
        if out.ndim == 3:
            out = one_hot(out, len(self.meta['classes'])).permute(0, 3, 1, 2).float()
        return out, tuple(tiles[0].shape[1:])

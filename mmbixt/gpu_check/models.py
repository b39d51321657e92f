"""Networks of full size: backbones, models of the OpenMMLab frameworks, their time and memory."""

import traceback
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

import mmbixt
from mmbixt.gpu_check.parity import Precision, default_dtype, on_fake_gpu, settings_for
from mmbixt.ops import use_ops

STOCK_SWIN = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'
# network: the one it is compared with (`@reference` is the authors' order), modules that one needs
NETWORKS = {
    'xcit_small_12_p16': ('timm/xcit_small_12_p16_224', ()),
    'biformer_small': ('biformer_small@reference', ()),
    'bixt_ti_l64_d13_p16': ('bixt_ti_l64_d13_p16@reference', ()),
    'swin_tiny': (STOCK_SWIN, ('mmcv', 'mmseg')),
    'bisa_swin_tiny': (STOCK_SWIN, ('mmcv', 'mmseg')),
}
SIZE = (200, 264)  # of images for parity: no stage divides it evenly
MODELS = {  # configs of ours, one of each kind
    'semfpn_xcit_t12_p16_ade20k': ('mmcv', 'mmseg'),
    'upernet_bisa_swin_t_ade20k': ('mmcv', 'mmseg'),
    'linear_bixt_ti_ade20k': ('mmcv', 'mmseg'),
    'maskrcnn_xcit_t12_p16_3x_coco': ('mmcv', 'mmdet'),
    'retinanet_biformer_t_1x_coco': ('mmcv', 'mmdet'),
    'bixt_ti_l64_d13_p16_in1k': ('mmcv', 'mmpretrain'),
}


def backbone(name: str, size: tuple[int, int] = SIZE) -> tuple[nn.Module, list[Tensor]]:
    """A network in training mode and images, as the cases of ops and layers are."""
    from mmbixt.benchmarking.networks import build

    return build(name, 512)[0].train(), [torch.randn(2, 3, *size)]


def next_regions(queries: Tensor, keys: Tensor, topk: int, valid: Tensor | None = None) -> Tensor:
    """In place of :func:`mmbixt.ops.route`: each region, and those after it, in any precision.

    Otherwise rounding decides about some routes in a deep network.
    """
    batch, regions = queries.shape[:2]
    first = torch.arange(regions, device=queries.device)
    routes = (first[:, None] + first[: min(topk, regions)]) % regions
    return routes.expand(batch, -1, -1)


# --- Models of the frameworks ---------------------------------------------------------------------


def model(name: str, size: tuple[int, int]) -> tuple[nn.Module, Tensor, list]:
    """A config's model in training mode, two images and their labels."""
    from mmengine.model import revert_sync_batchnorm
    from mmengine.registry import MODELS as REGISTRY
    from mmengine.registry import init_default_scope

    from mmbixt.cli import read_config

    cfg = read_config(name)
    cfg.model.backbone.init_cfg = None
    init_default_scope(cfg.default_scope)
    built = revert_sync_batchnorm(REGISTRY.build(cfg.model)).train()
    return built, torch.randn(2, 3, *size), [sample(cfg.default_scope, size) for _ in range(2)]


def sample(scope: str, size: tuple[int, int]) -> Any:
    """Random labels of an image, in the class of a framework."""
    from mmengine.structures import InstanceData, PixelData

    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size)
    if scope == 'mmseg':
        from mmseg.structures import SegDataSample

        found = SegDataSample(metainfo=meta)
        found.gt_sem_seg = PixelData(data=torch.randint(100, (1, *size)))
    elif scope == 'mmpretrain':
        from mmpretrain.structures import DataSample

        found = DataSample(metainfo=meta).set_gt_label(torch.randint(10, (1,)))
    else:
        import numpy as np
        from mmdet.structures import DetDataSample
        from mmdet.structures.mask import BitmapMasks

        found = DetDataSample(metainfo=meta | dict(scale_factor=(1.0, 1.0)))
        boxes = torch.tensor([[8, 8, 60, 70], [30, 20, 90, 60]]).float()
        masks = BitmapMasks(np.ones((2, *size), np.uint8), *size)
        classes = torch.randint(80, (2,))
        found.gt_instances = InstanceData(bboxes=boxes, labels=classes, masks=masks)
        found.ignored_instances = InstanceData(bboxes=boxes[:0], labels=classes[:0])
    return found


def total(losses: dict[str, Any]) -> Tensor:
    """The sum of the losses, as in mmengine's models."""
    parts = [part for key, part in losses.items() if 'loss' in key]
    return sum(x.mean() for part in parts for x in (part if isinstance(part, list) else [part]))


def check_model(name: str, device: str, precision: Precision, size=(192, 256)) -> dict:
    """A training step: the loss of the plain order, and finite gradients for every parameter."""
    found = {}
    for path in ('reference', 'auto'):
        torch.manual_seed(0)
        with torch.device(device):
            built, images, samples = model(name, size)
        dtype, settings = precision.autocast, settings_for(precision)
        with use_ops(path), settings, torch.autocast(device, dtype, enabled=dtype is not None):
            found[path] = total(built.loss(images, samples))
    scale = 1.0 if precision.autocast != torch.float16 else 2.0**10
    (found['auto'] * scale).backward()
    bad = [n for n, p in built.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    plain, ours = float(found['reference']), float(found['auto'])
    text = f'loss {ours:.3f}, {plain:.3f} in the plain order'
    if bad or not abs(ours - plain) <= 0.05 * abs(plain):
        text += f'; no finite gradients: {bad[:3]}' if bad else ''
        return dict(status='failed', text=text)
    return dict(status='ok', text=text)


def check_model_on_fake_tensors(name: str, precision: Precision, size=(128, 96)) -> dict:
    """Feature maps, the outputs of the heads, and the losses as far as they read no values.

    mmseg's accuracy reads values and is left out (it is only logged). mmdet's assigners do, too.
    """
    with on_fake_gpu(precision):
        built, images, samples = model(name, size)
        feature_maps = built.extract_feat(images)
        heads = {part: getattr(built, part, None) for part in ('rpn_head', 'bbox_head')}
        outputs = [feature_maps, *(head(feature_maps) for head in heads.values() if head)]
        if roi := getattr(built, 'roi_head', None):
            width = feature_maps[0].shape[1]
            outputs += [roi.bbox_head(torch.randn(4, width, 7, 7))]
            outputs += [roi.mask_head(torch.randn(4, width, 14, 14))]
        done, left_out = 'feature maps and heads', nullcontext()
        if 'mmseg' in MODELS[name]:
            left_out = mock.patch('mmseg.models.decode_heads.decode_head.accuracy')
        try:
            # two-stage detectors copy tensors, and copies of fake ones belong to no mode
            with left_out, mock.patch('copy.deepcopy', lambda x: x):
                outputs.append(total(built.loss(images, samples)))
            done += ' and losses'
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            frames = traceback.extract_tb(error.__traceback__)
            (*_, last) = (f for f in frames if '/torch/' not in f.filename)
            place = '/'.join(last.filename.split('/')[-4:])
            if Path(mmbixt.__file__).parent in Path(last.filename).parents:
                return dict(status='failed', text=f'{place}:{last.lineno} reads values')
            done += f'; the losses read values in {place}:{last.lineno}'
    if {x.device.type for x in torch.utils._pytree.tree_leaves(outputs)} != {'cuda'}:
        return dict(status='failed', text='not all outputs are on the GPU')
    return dict(status='ok', text=done)


# --- Time and memory ------------------------------------------------------------------------------


def measure(names: tuple[str, str], device: str, batch: int, size: int = 512) -> dict:
    """Two networks in bfloat16 in turns, A B A B; an error in one does not stop the other."""
    from mmbixt.benchmarking.worker import Network, Setting

    torch._dynamo.reset()
    setting = Setting(batch, device, 'bf16', torch.get_num_threads())
    networks, problems = {}, {}
    figures = {name: dict(memory=[], forward=[], both=[]) for name in names}

    def take(name: str, *wanted: str) -> None:
        try:
            networks[name] = networks.get(name) or Network(name, size, setting)
            with default_dtype(torch.bfloat16):  # of the mask that mmseg's Swin makes
                for what in wanted:
                    figures[name][what].append(networks[name].get(what))
        except Exception as error:
            problems[name] = f'{type(error).__name__}: {error}'[:300]
            networks.pop(name, None)  # and its memory
            torch.cuda.empty_cache()

    for turn in range(9):
        for name in names:
            if name not in problems:
                take(name, *(['memory'] if turn == 1 else ['forward', 'both']))
    for name in problems:
        del figures[name]
    text = [f'{name}: {problem}' for name, problem in problems.items()]
    for name, found in figures.items():
        found['forward'], found['both'] = found['forward'][1:], found['both'][1:]  # compiled before
        forward, both = (median(found[key]) * 1e3 for key in ('forward', 'both'))
        memory = found['memory'][0] / 1e9
        text.append(f'{name} {forward:.1f} ms, with backward {both:.1f} ms, {memory:.2f} GB')
    status = 'failed' if names[0] in problems else 'ok'
    return dict(status=status, text='; '.join(text), figures=figures)

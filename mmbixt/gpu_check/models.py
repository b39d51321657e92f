"""Networks of full size: backbones, models of the OpenMMLab frameworks, their time and memory."""

import traceback
from contextlib import nullcontext
from pathlib import Path
from statistics import median
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

    from mmbixt.benchmarking.labels import random_labels
    from mmbixt.cli import read_config

    cfg = read_config(name)
    cfg.model.backbone.init_cfg = None
    init_default_scope(cfg.default_scope)
    built = revert_sync_batchnorm(REGISTRY.build(cfg.model)).train()
    labels = [random_labels(cfg.default_scope, size) for _ in range(2)]
    return built, torch.randn(2, 3, *size), labels


def check_model(name: str, device: str, precision: Precision, size=(192, 256)) -> dict:
    """A training step: the loss of the plain order, and finite gradients for every parameter."""
    found = {}
    for path in ('reference', 'auto'):
        torch.manual_seed(0)
        with torch.device(device):
            built, images, samples = model(name, size)
        dtype, settings = precision.autocast, settings_for(precision)
        with use_ops(path), settings, torch.autocast(device, dtype, enabled=dtype is not None):
            found[path] = built.parse_losses(built.loss(images, samples))[0]
    scale = 1.0 if precision.autocast != torch.float16 else 2.0**10
    (found['auto'] * scale).backward()
    bad = [n for n, p in built.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    plain, ours = float(found['reference']), float(found['auto'])
    text = f'loss {ours:.3f}, {plain:.3f} in the plain order'
    text += f'; no finite gradients: {bad[:3]}' if bad else ''
    is_right = not bad and abs(ours - plain) <= 0.05 * abs(plain)
    return dict(status='ok' if is_right else 'failed', text=text)


def check_model_on_fake_tensors(name: str, precision: Precision, size=(128, 96)) -> dict:
    """Feature maps, the outputs of the heads, and the losses as far as they read no values.

    mmseg's accuracy reads values and is left out (it is only logged). mmdet's assigners do, too.
    """
    with on_fake_gpu(precision):
        built, images, samples = model(name, size)
        feature_maps = built.extract_feat(images)
        heads = [getattr(built, part, None) for part in ('rpn_head', 'bbox_head')]
        outputs = [feature_maps, *(head(feature_maps) for head in heads if head)]
        if roi := getattr(built, 'roi_head', None):
            width = feature_maps[0].shape[1]
            outputs += [roi.bbox_head(torch.randn(4, width, 7, 7))]
            outputs += [roi.mask_head(torch.randn(4, width, 14, 14))]
        done, left_out = 'feature maps and heads', nullcontext()
        if 'mmseg' in MODELS[name]:
            where = 'mmseg.models.decode_heads.decode_head.accuracy'
            left_out = mock.patch(where, return_value=images)
        try:
            # two-stage detectors copy tensors, and copies of fake ones belong to no mode
            with left_out, mock.patch('copy.deepcopy', lambda x: x):
                outputs.append(built.parse_losses(built.loss(images, samples))[0])
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
    networks, texts = {}, {}
    figures = {name: dict(memory=[], forward=[], both=[]) for name in names}
    times = 'forward', 'both'
    for turn, wanted in enumerate([times, ['memory'], *[times] * 7]):
        for name in list(figures):
            try:
                if turn == 0:
                    networks[name] = Network(name, size, setting)
                with default_dtype(torch.bfloat16):  # of the mask that mmseg's Swin makes
                    found = {what: networks[name].get(what) for what in wanted}
            except Exception as error:
                texts[name] = f'{name}: {type(error).__name__}: {error}'[:300]
                networks.pop(name, None)  # and its memory
                del figures[name]
                continue
            for what in wanted if turn else ():  # the first turn may compile
                figures[name][what].append(found[what])
    status = 'ok' if names[0] in figures else 'failed'
    for name, found in figures.items():
        forward, both = (median(found[what]) * 1e3 for what in times)
        memory = found['memory'][0] / 1e9
        texts[name] = f'{name} {forward:.1f} ms, with backward {both:.1f} ms, {memory:.2f} GB'
    return dict(status=status, text='; '.join(texts.values()), figures=figures)

"""Models of mmseg, mmdet and mmpretrain as ONNX files, from pixels to results."""

from pathlib import Path

import mmcv
import torch
from mmengine.config import Config
from torch import Tensor
from torch.nn.functional import interpolate

from mmbixt.errors import UserError
from mmbixt.export.classifier import ExportedClassifier
from mmbixt.export.detector import ExportedDetector
from mmbixt.export.files import agrees, metadata, write
from mmbixt.export.segmentor import ExportedSegmentor
from mmbixt.predict.trained import load_trained
from mmbixt.scenes.scene import make_scene

__all__ = ['export']

KINDS = dict(mmseg=ExportedSegmentor, mmdet=ExportedDetector, mmpretrain=ExportedClassifier)
SIZES = dict(mmseg=(480, 544), mmdet=(800, 1344), mmpretrain=(224, 224))  # height, width
CHECKED = ((1, 480, 544), (2, 512, 512), (3, 225, 290), (1, 640, 352))  # if the size is free


def export(
    name: str,
    config: Config,
    checkpoint: str,
    file: Path,
    size: tuple[int, int] | None = None,
    photo: str | None = None,
    **options: bool,
) -> bool:
    """Write a file, unless it differs from the model.

    Args:
        name: of the config, for the metadata of the file.
        size: height and width of the images; default: ``SIZES``.
        photo: an image in which detections are compared; default: generated scenes.
        options: of :class:`mmbixt.export.segmentor.ExportedSegmentor`.

    Returns:
        Whether they agree.
    """
    scope = config.get('default_scope') or 'mmseg'
    if scope not in KINDS:
        raise UserError(f'{name} is a config of {scope}, not of {", ".join(KINDS)}.')
    if scope == 'mmseg':
        config.model.test_cfg = dict(mode='whole')
    height, width = size or SIZES[scope]
    if scope == 'mmdet' and (height % 32 or width % 32):  # the stride of the last feature map
        raise UserError(f'{height} x {width} pixels: height and width must be multiples of 32.')
    model, meta = load_trained(config, checkpoint)
    exported = KINDS[scope](model, config, **options).eval()
    example = smooth_images(exported.batch, height, width)
    if scope == 'mmdet':
        photos = [mmcv.imread(photo)] if photo else [make_scene(i).image for i in (0, 1)]
        photos = [torch.tensor(mmcv.imresize(x, (width, height))).float() for x in photos]
        batches = [x.permute(2, 0, 1)[None] for x in photos]
    else:
        batches = [smooth_images(*x) for x in CHECKED] if options.get('dynamic') else [example]
    part = file.with_name(f'{file.name}.part')
    try:
        write(exported, example, metadata(name, config, exported.prepare, meta), part)
        if is_equal := agrees(part, exported, model, batches):
            part.replace(file)
    finally:  # also if onnxruntime cannot run it
        part.unlink(missing_ok=True)
    return is_equal


def smooth_images(batch: int, height: int, width: int) -> Tensor:
    """Random smooth images, (B,3,H,W) from 0 to 255."""
    generator = torch.Generator().manual_seed(height * width)
    coarse = 255 * torch.rand(batch, 3, height // 16 + 2, width // 16 + 2, generator=generator)
    return interpolate(coarse, (height, width), mode='bicubic').clamp(0, 255)

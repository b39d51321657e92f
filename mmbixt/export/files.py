"""ONNX files: their metadata, how they are written, and how they are compared with the model."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor, nn

from mmbixt.attention import RoutingAttention
from mmbixt.version import __version__


def is_rgb(prepare: Mapping[str, Any]) -> bool:
    """Whether a data preprocessor reverses the channels that OpenCV reads."""
    return any(prepare.get(name) for name in ('bgr_to_rgb', 'rgb_to_bgr', 'to_rgb'))


def normalise(images: Tensor, model: nn.Module, prepare: Mapping[str, Any]) -> Tensor:
    """Images (B,3,H,W) from 0 to 255 as the data preprocessor of a model normalises them."""
    images = images.flip(1) if is_rgb(prepare) else images
    if not prepare.get('mean'):
        return images
    return (images - model.data_preprocessor.mean) / model.data_preprocessor.std


def metadata(
    name: str, config: Config, prepare: Mapping[str, Any], meta: Mapping[str, Any]
) -> dict[str, str]:
    """What a program needs to use a file: texts, and JSON where there are several values.

    ``mean`` is the colour that becomes 0, with which detectors are padded.
    """
    values = {key: meta[key] for key in ('classes', 'palette') if meta.get(key)}
    pipeline = config.test_dataloader.dataset.get('pipeline', [])
    values['resize'] = [x for x in pipeline if 'Resize' in str(x['type'])]
    values['mean'] = list(prepare.get('mean', (0, 0, 0)))[:: -1 if is_rgb(prepare) else 1]
    texts = dict(
        config=Path(name).stem,
        mmbixt_version=__version__,
        input='float32 (batch,3,height,width), 0 to 255, channels blue, green, red',
    )
    return texts | {key: json.dumps(value) for key, value in values.items()}


@torch.no_grad()
def write(exported: nn.Module, example: Tensor, texts: Mapping[str, str], file: Path) -> None:
    """Write a model as ONNX, for images as large as the example (B,3,H,W), with its metadata."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    names = dict(input_names=['images'], output_names=exported.outputs)
    shapes = (exported.free,) if exported.free else None
    program = torch.onnx.export(exported, (example,), dynamo=True, dynamic_shapes=shapes, **names)
    ClearMetadataAndDocStringPass()(program.model)  # each node has a stack trace of this machine
    program.model.metadata_props.update(texts)
    program.save(file, external_data=False)


@torch.no_grad()
def agrees(file: Path, exported: nn.Module, model: nn.Module, batches: Iterable[Tensor]) -> bool:
    """Whether a file in onnxruntime and a model in its framework agree on images; says how far."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    # BiFormer may choose another region where the scores of two are almost equal
    has_routes, results = any(isinstance(x, RoutingAttention) for x in model.modules()), []
    for images in batches:
        outputs = session.run(None, dict(images=images.numpy()))
        text, is_equal = exported.compare(outputs, model, images, has_routes)
        size = ' x '.join(str(side) for side in (images.shape[0], *images.shape[2:]))
        print(f'onnxruntime and torch, {size} pixels: {text}', flush=True)
        results.append(is_equal)
    return all(results)

"""Code shared by the tests: official weights, goldens, the folder of the configs."""

import json
import lzma
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import torch
from reference import fill
from reference.golden_io import Golden
from torch import nn
from torch.utils._pytree import tree_leaves

from mmbixt.attention import by_definition
from mmbixt.checkpoints.sources import SOURCES

REFERENCE = Path(__file__).parent / 'reference'
CONFIGS = Path(__file__).parents[1] / 'configs'
IS_FORK = packages_distributions().get('mim') == ['onedl-mim']


def formulation(name: str) -> AbstractContextManager:
    """Compute attentions in the formulation that runs ('fast'), or by their 'definition'."""
    return by_definition() if name == 'definition' else nullcontext()


def others_in_zoo(values: Iterable[Any], here: Collection[Any]) -> list[Any]:
    """Parameters of a test, of which only a few run outside of ``make test-zoo``."""
    return [x if x in here else pytest.param(x, marks=pytest.mark.zoo) for x in values]


@cache
def official_layouts() -> dict[str, dict]:
    """For each official file: 'state_dict' (name -> shape), 'params' (their number), 'source'."""
    with lzma.open(REFERENCE / 'layouts.json.xz') as file:
        return json.load(file)


def official_shapes(layout: str) -> dict[str, list[int]]:
    return official_layouts()[layout]['state_dict']


def official_state(layout: str) -> dict[str, torch.Tensor]:
    """An official state dict: the names and shapes of a layout, filled by the reference rule."""
    filled = fill.fill_numpy(official_shapes(layout))
    return {key: torch.from_numpy(value) for key, value in filled.items()}


def put_in_cache(name: str, weights: dict[str, Any], home: Path) -> None:
    """Save published weights in torch hub's folder, as if their file had been downloaded."""
    file = home / 'hub/checkpoints' / SOURCES[name].file
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(weights, file)


def put_segmentor_in_cache(home: Path) -> dict[str, Any]:
    """The file of the authors' small segmentor, filled by the reference rule, as a download."""
    weights = dict(meta={}, state_dict=official_state('whole__sem_fpn_xcit_tiny_12_p16'))
    put_in_cache('xcit://ade-semfpn-tiny12-p16', weights, home)
    return weights


def official_parameters(layout: str) -> int:
    return official_layouts()[layout]['params']


def golden(name: str) -> Golden:
    return Golden(REFERENCE / f'goldens/{name}.npz')


def image(batch: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(fill.image(batch, height, width, seed))


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Tensors, or several of them, are equal within a fraction of the largest value."""
    if not isinstance(actual, torch.Tensor):
        for pair in zip(actual, expected, strict=True):
            assert_close(*pair, tolerance)
        return
    scale = expected.abs().max().clamp_min(1e-12)
    assert actual.shape == expected.shape
    worst = (actual - expected).abs().max()
    assert worst <= tolerance * scale, f'off by {float(worst / scale):.2e} of absmax'


def unused_parameters(model: nn.Module, heads: Collection[str]) -> list[str]:
    """Parameters of a detector or segmentor without gradients, for which DDP raises an error.

    Args:
        model: on the meta device.
        heads: names of the parts that compute outputs from feature maps.
    """
    from mmengine.model import revert_sync_batchnorm  # here, for make test-lowest

    model = revert_sync_batchnorm(model).train()
    side = getattr(model.backbone, 'img_size', None)
    height, width = (side, side) if side else (80, 56)
    feature_maps = model.extract_feat(torch.empty(2, 3, height, width, device='meta'))
    parts = [part for name, part in model.named_children() if name in heads]
    outputs = tree_leaves([feature_maps, *(part(feature_maps) for part in parts)])
    sum(x.sum() for x in outputs).backward()
    return [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]


def python(*arguments: object, cwd: Path | None = None, **variables: str) -> str:
    """The output of Python in a new process, which must succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr

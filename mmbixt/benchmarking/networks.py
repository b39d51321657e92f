"""Networks by name: each computes a list of feature maps from an image."""

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from mmbixt.backbones.published import PUBLISHED
from mmbixt.checkpoints.sources import near_matches
from mmbixt.cli import read_config
from mmbixt.ops.dispatch import PATHS

NAMES = """\
  xcit_tiny_12_p16               one of our published models (docs/configs.md lists them)
  biformer_tiny@reference        with a path for all ops (a value of MMBIXT_OPS)
  swin_tiny@compiled             any network with torch.compile
  timm/xcit_tiny_12_p16_224      any model of timm that returns feature maps
  configs/..., mmseg::...        the backbone of a config: a file or one of an installed package
  my_code.py:build               the result of a function in another file (which is executed)"""


MODES = (*PATHS, 'compiled')


class UnknownRowError(ValueError):
    """No network has this name."""


def build(name: str, size: int) -> tuple[nn.Module, str]:
    """A network by its name (see :data:`NAMES`), and its mode, one of :data:`MODES`.

    Stochastic depth is off, because it skips a random amount of work.

    Args:
        name: name of the network.
        size: height and width of the images.
    """
    name, _, mode = name.partition('@')
    if mode and mode not in MODES:
        raise UnknownRowError(f'{name}@{mode}: the modes are {", ".join(MODES)}.')
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return _build(name, size), mode or 'auto'


def _build(name: str, size: int) -> nn.Module:
    if name.startswith('timm/'):
        return _build_of_timm(name.removeprefix('timm/'), size)
    if '.py:' in name:
        path, _, function = name.rpartition(':')
        return _build_external(Path(path), function)
    if name.endswith('.py'):
        return _build_of_config(name)
    for model in PUBLISHED:
        if model.name == name:
            options = dict(model.at_512) if size >= 512 else {}
            return MODELS.build({**model.backbone, **options, 'drop_path_rate': 0.0})
    near = near_matches(name, [model.name for model in PUBLISHED])
    raise UnknownRowError(f'There is no network {name!r}.{near} Names are\n{NAMES}')


def _build_of_timm(name: str, size: int) -> nn.Module:
    import timm

    if name not in timm.list_models():
        near = near_matches(name, timm.list_models())
        raise UnknownRowError(f'timm {timm.__version__} has no model {name!r}.{near}')
    options = dict(dynamic_img_size=True) if name.startswith(('vit_', 'deit')) else {}
    model = timm.create_model(name, **options)
    if hasattr(model, 'blocks') and hasattr(model, 'forward_intermediates'):
        return Intermediates(model, len(model.blocks))
    return timm.create_model(name, features_only=True)


class Intermediates(nn.Module):
    """Tokens after a third, a half, two thirds and all of the blocks of a columnar timm model."""

    def __init__(self, model: nn.Module, depth: int) -> None:
        super().__init__()
        self.model = model
        self.indices = [depth // 3 - 1, depth // 2 - 1, 2 * depth // 3 - 1, depth - 1]

    def forward(self, x: Tensor) -> Sequence[Tensor]:
        options = dict(stop_early=True, output_fmt='NLC', intermediates_only=True)
        return self.model.forward_intermediates(x, self.indices, **options)


def _build_of_config(name: str) -> nn.Module:
    cfg = read_config(name)
    init_default_scope(cfg.default_scope)
    backbone = cfg.model.backbone
    if 'drop_path_rate' in backbone:
        backbone.drop_path_rate = 0.0
    return MODELS.build(backbone)


def _build_external(path: Path, function: str) -> nn.Module:
    if not path.is_file():
        raise UnknownRowError(f'There is no file {path.absolute()}.')
    found: Callable | None = runpy.run_path(str(path)).get(function)
    if found is None:
        raise UnknownRowError(f'{path} has no {function}.')
    return found()

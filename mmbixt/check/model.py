"""Whether the parts of a model fit together: they are run on shapes, without weights or images."""

import copy
import re
from collections.abc import Iterator, Mapping
from math import log2
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from timm.layers import to_2tuple
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from mmbixt.attention import RoutingAttention
from mmbixt.check.names import explain, valid
from mmbixt.checkpoints.sources import SOURCES, UnknownSourceError, find
from mmbixt.config import type_name
from mmbixt.frameworks import is_of_project

PARTS = ('backbone', 'neck', 'rpn_head', 'roi_head', 'bbox_head', 'mask_head', 'decode_head')
PARTS += ('auxiliary_head', 'head')
HEADS_OF_DETECTORS = ('rpn_head', 'bbox_head')
HEADS = ('decode_head', 'auxiliary_head', 'head', *HEADS_OF_DETECTORS)
PRETRAINED = {'checkpoint', 'prefix', 'map_location', 'adapt_stem'}  # the last one is ours
OF_SHAPES = re.compile('must match|Invalid channel dimensions|cannot be multiplied')  # of torch
PUBLISHED = tuple({name.partition('://')[0] + '://' for name in SOURCES})


def without_weights(config: Mapping[str, Any]) -> nn.Module:
    """A model on the meta device, in eval mode, which computes shapes only."""
    try:
        with torch.device('meta'):
            return MODELS.build(copy.deepcopy(config)).eval()  # models change their configs
    except (RuntimeError, TypeError):  # it reads values when it is built
        return MODELS.build(copy.deepcopy(config)).to('meta').eval()


def build_model(cfg: Config) -> tuple[nn.Module | None, list[str]]:
    """The model of a config, or the errors of the parts that cannot be built."""
    scope, config = cfg.get('default_scope'), dict(cfg.get('model') or {})
    if not config:
        return None, ['The config has no model.']
    if 'data_preprocessor' in cfg:
        config.setdefault('data_preprocessor', cfg.data_preprocessor)
    try:
        return without_weights(config), []
    except Exception as error:
        if 'process group' in str(error):  # none exists yet
            return None, []
        if config.get('pretrained') and "argument 'pretrained'" in str(error):
            return None, [
                f'model.pretrained = {config["pretrained"]!r}: the backbone has no such argument. '
                'Set pretrained=None, and init_cfg of the backbone.'
            ]
        problems = [f'model ({config.get("type")}): {explain(error, scope)}']
    found = []
    for name, _, part in _nodes(config, PARTS):
        try:
            without_weights(part)
        except Exception as error:
            text = f'model.{name} ({part.get("type")}): {explain(error, scope)}'
            found.append(text + _linear_layers(part) if 'No lora layer' in text else text)
    return None, found or problems


def _linear_layers(config: Mapping[str, Any]) -> str:
    """For an error about the targets of mmpretrain's ``LoRAModel``: which layers there are."""
    given = ', '.join(repr(target['type']) for target in config['targets'])
    layers = without_weights(config['module']).named_modules()
    names = {key.rpartition('.')[2] for key, part in layers if isinstance(part, nn.Linear)}
    there = ', '.join(sorted(names))
    return f'. No linear layer of its module is {given}; its layers end with {there}.'


def _nodes(config: Mapping, names: tuple[str, ...], model: nn.Module | None = None) -> Iterator:
    """Name, module and config of the parts with these names, or of the elements of a list."""
    for name in names:
        part, module = config.get(name), getattr(model, name, None)
        if isinstance(part, list | tuple):
            for i, one in enumerate(part):
                yield f'{name}.{i}', module and module[i], one
        elif part:
            yield name, module, part


def missing_files(config: Any, path: str) -> Iterator[str]:
    """A message for each local file of weights in a config that does not exist."""
    if isinstance(config, list | tuple):
        config = {str(i): part for i, part in enumerate(config)}
    if not isinstance(config, Mapping):
        return
    if config.get('type') == 'Pretrained':
        file = config.get('checkpoint')
        if not (file and isinstance(file, str)):
            yield f'{path}.checkpoint = {file!r} is no file. Without weights: init_cfg=None.'
        yield from missing_file(file, f'{path}.checkpoint')
        for key in sorted(config.keys() - PRETRAINED - {'type', '_scope_', '_delete_'}):
            yield f'{path}.{key}: Pretrained has no such argument.{valid(key, PRETRAINED)}'
    for key, part in config.items():
        yield from missing_files(part, f'{path}.{key}')


def missing_file(file: Any, path: str) -> Iterator[str]:
    if not isinstance(file, str):
        return
    if file.startswith(PUBLISHED):
        try:
            find(file)
        except UnknownSourceError as error:
            yield f'{path}: {error}'
    elif '://' not in file and not Path(file).exists():
        yield f'{path} = {file!r}: there is no such file (in {Path.cwd()}).'


def adapter_problems(model: nn.Module) -> Iterator[str]:
    """Mistakes around mmpretrain's ``LoRAModel``, whose checkpoints hold the adapters only."""
    for name, part in model.named_modules():
        if type(part).__name__ != 'LoRAModel':
            continue
        if not getattr(part.module, 'init_cfg', None):
            yield (
                f'model.{name}.module.init_cfg: checkpoints of the run do not contain the weights '
                "that adapters belong to. Set it to dict(type='Pretrained', checkpoint=...)."
            )
        was_training = part.training
        part.train()
        norms = [x for x in part.modules() if isinstance(x, _BatchNorm) and x.track_running_stats]
        if any(norm.training for norm in norms):
            advice = 'Set it to True.'
            if not hasattr(part.module, 'norm_eval'):
                advice = f'{type(part.module).__name__} has no such option: choose another network.'
            yield (
                f'model.{name}.module.norm_eval = False: training changes the statistics of batch '
                f'norms, which checkpoints of adapters do not contain. {advice}'
            )
        part.train(was_training)


def misfits(config: Mapping[str, Any], model: nn.Module, image: Tensor) -> Iterator[str]:
    """Run backbone, necks and heads on shapes, and report the parts whose input does not fit.

    Parts that need values are left out: only an error about shapes is a mistake.
    """
    if 'BaseSelfSupervisor' in (kind.__name__ for kind in type(model).__mro__):
        return  # it calls its parts with masks
    if is_of_project(getattr(type(model), 'extract_feat', type(model))):
        return  # it may give its parts other inputs
    cells = _watch_regions(model)
    maps, problems = _feature_maps(config, model, image)
    yield from problems
    if maps is None:
        return
    yield from _too_many_regions(cells, image)
    for name, part, node in _nodes(config, HEADS, model):
        # later heads of a cascade read the output of the first
        if not name.startswith('decode_head.') or name == 'decode_head.0':
            yield from _run(name, part, node, maps, proven=name.startswith(HEADS_OF_DETECTORS))[1]
    if 'shared_head' not in (roi := config.get('roi_head') or {}):
        yield from _misfits_of_regions(roi, model, maps)
    if all(x.dim() == 4 for x in _tensors(maps)):
        yield from _wrong_strides(model, _tensors(maps), image)


def _feature_maps(
    config: Mapping[str, Any], model: nn.Module, image: Tensor
) -> tuple[Any, list[str]]:
    """What backbone and necks return (None if it is unknown), and their problems."""
    maps, problems = image, []
    for name, part, node in _nodes(config, ('backbone', 'neck'), model):
        maps, found = _run(name, part, node, maps)
        problems += found
        if maps is None:
            break
    return maps, problems


def pyramid_notes(config: Mapping[str, Any], model: nn.Module, image: Tensor) -> Iterator[str]:
    """A note where UperNet's head fuses feature maps of one size: it runs, but without detail."""
    head = config.get('decode_head')
    if not isinstance(head, Mapping) or not type_name(head).endswith('UPerHead'):
        return
    maps, _ = _feature_maps(config, model, image)
    sizes = [tuple(x.shape[2:]) for x in _tensors(maps)]
    if len(sizes) > 1 and len({*sizes}) == 1:
        side = image.shape[2] / sizes[0][0]
        yield (
            f'model.decode_head ({type_name(head)}) gets {len(sizes)} feature maps of stride '
            f'{side:g}, and is made for the strides 4, 8, 16 and 32: '
            'mmbixt.FeaturePyramidAdapter, as neck, makes them.'
        )


def _wrong_strides(model: nn.Module, maps: list[Tensor], image: Tensor) -> Iterator[str]:
    """A message for each part that takes its feature maps for those of other strides.

    Anchors and regions would be in wrong places, without an error.
    """
    for name, part in model.named_modules():
        used, height = maps, image.shape[2]
        if re.fullmatch(r'(rpn|bbox)_head', name) and hasattr(part, 'prior_generator'):
            key = 'anchors or points'
            strides = [stride[1] for stride in part.prior_generator.strides]
        elif re.match(r'roi_head\.(bbox|mask)_roi_ext', name) and hasattr(part, 'featmap_strides'):
            key, strides = 'featmap_strides', part.featmap_strides
            used = maps[: len(strides)]
        elif name == 'decode_head' and hasattr(part, 'feature_strides'):
            if max(part.in_index) >= len(maps):
                continue
            # how often maps are enlarged: only relative strides count
            key, strides = 'feature_strides', part.feature_strides
            used = [maps[i] for i in part.in_index]
            height = used[0].shape[2] * strides[0]
        else:
            continue
        sides = [x.shape[2] for x in used]
        # images may be padded to a multiple of a stride; a wrong stride is wrong by a factor of 2
        pairs = zip(sides, strides, strict=False)
        apart = [abs(side * y - height) / max(6 * y, height) for side, y in pairs]
        if len(sides) != len(strides) or max(apart, default=0) > 0.25:
            there = [_stride(image.shape[2], side) for side in sides]
            name = name.rstrip('.0123456789')  # one message for all stages of a cascade
            yield (
                f'model.{name}: its {key} are for feature maps with the strides {[*strides]}, '
                f'but the maps have {there}. Set these strides, or make maps of other strides by '
                'mmbixt.FeaturePyramidAdapter (with out_strides), as the first neck.'
            )


def _stride(length: int, side: int) -> int:
    """The power of 2 that gives a side; if there is none, the ratio. Sides are rounded up."""
    power = 2 ** round(log2(length / side))
    return power if abs(length / power - side) <= 1 else round(length / side)


def _misfits_of_regions(config: Mapping, model: nn.Module, maps: Any) -> Iterator[str]:
    """The same for the heads of regions, which an extractor cuts out of the feature maps."""
    widths = {x.shape[1] for x in _tensors(maps)}
    for kind in ('bbox', 'mask'):
        extractor = config.get(f'{kind}_roi_extractor') or {}
        if isinstance(extractor, list | tuple):  # one for each stage of a cascade
            extractor = extractor[0]
        width, layer = extractor.get('out_channels'), extractor.get('roi_layer') or {}
        if width is None or len(widths) > 1:
            continue
        if width not in widths:
            yield (
                f'model.roi_head.{kind}_roi_extractor.out_channels = {width}, but the feature maps '
                f'have {min(widths)} channels: use this number.'
            )
        side = layer.get('output_size')
        fed = torch.empty(1, min(widths), *to_2tuple(side))
        for name, part, node in _nodes(config, (f'{kind}_head',), model.roi_head):
            yield from _run(f'roi_head.{name}', part, node, fed.to('meta'), proven=True)[1]


def _run(
    name: str, part: nn.Module, config: Mapping, inputs: Any, proven: bool = False
) -> tuple[Any, list[str]]:
    """The outputs of a part (None if they are unknown), and its problems.

    A wrong ``in_channels`` is reported if the part runs with the right one. Other errors are
    reported if they come from a check, but not where only ``proven`` mistakes are wanted.
    """
    try:
        return part(inputs), []
    except Exception as error:
        failure = error
    given = config.get('in_channels', getattr(part, 'in_channels', None))
    try:
        right = _channels_of(inputs, given, config.get('in_index', -1))
        outputs = without_weights({**config, 'in_channels': right})(inputs)
    except Exception:  # something else is wrong, too, or the part needs values
        is_check = isinstance(failure, AssertionError | IndexError | ValueError)
        if proven or not (is_check or OF_SHAPES.search(str(failure))):
            return None, []
        fed = ', '.join(' x '.join(map(str, x.shape[1:])) for x in _tensors(inputs))
        return None, [
            f'model.{name} ({config.get("type")}) cannot use its input, {fed}: '
            f'{type(failure).__name__}: {failure}'
        ]
    if right == given:
        return outputs, []
    what = 'an image' if name == 'backbone' else 'its input'
    return outputs, [f'model.{name}.in_channels = {given}, but {what} has {right}: use {right}.']


def _channels_of(inputs: Any, given: Any, index: int | list[int]) -> Any:
    """The ``in_channels`` that suit feature maps (B,C,H,W), vectors (B,C) or tokens (B,N,C)."""
    widths = [x.shape[-1 if x.ndim == 3 else 1] for x in _tensors(inputs)]
    if isinstance(given, list | tuple):
        return [widths[i] for i in index] if isinstance(index, list | tuple) else widths
    return widths[index] if isinstance(index, int) else widths[-1]


def _tensors(outputs: Any) -> list[Tensor]:
    """All tensors in nested outputs; some backbones return None for an unused one."""
    return [x for x in tree_leaves(outputs) if isinstance(x, Tensor)]


def _watch_regions(model: nn.Module) -> dict[int, int]:
    """The shortest side of a feature map for each number of regions per side, once it has run."""
    cells: dict[int, int] = {}

    def note(attention: RoutingAttention, inputs: tuple[Tensor]) -> None:
        count, side = attention.num_regions, min(inputs[0].shape[1:3])
        cells[count] = min(side, cells.get(count, side))

    for module in model.modules():
        if isinstance(module, RoutingAttention):
            module.register_forward_pre_hook(note)
    return cells


def _too_many_regions(cells: Mapping[int, int], image: Tensor) -> Iterator[str]:
    size = ' x '.join(map(str, image.shape[2:]))
    for regions, side in cells.items():
        if regions > side:
            yield (
                f'model.backbone.num_regions = {regions}, but for an image of {size} pixels the '
                f'smallest feature map with regions has a side of {side} cells. Use {side} or less '
                '(the authors: 7 for 224 pixels, 8 for 512), or larger images.'
            )

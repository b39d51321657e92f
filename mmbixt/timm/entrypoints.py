"""The names in timm's registry: one function for each, made from the list of published models."""

from collections.abc import Callable
from typing import Any

from timm.models import (
    PretrainedCfg,
    build_model_with_cfg,
    generate_default_cfgs,
    get_pretrained_cfg,
    register_model,
)
from torch import nn

from mmbixt.backbones.arch import check_choice
from mmbixt.backbones.base import DenseBackbone
from mmbixt.backbones.recognise import without_memory
from mmbixt.backbones.weights import first_convolution
from mmbixt.checkpoints.loader import find_file
from mmbixt.checkpoints.sources import PUBLISHED, Published
from mmbixt.checkpoints.stand_ins import stand_ins
from mmbixt.timm.classifier import checkpoint_filter_fn, classifier_of
from mmbixt.timm.pyramid import Pyramid

__all__: list[str] = []  # timm adds the names

SOURCE_KEYS = {'url', 'file', 'state_dict', 'hf_hub_id', 'source'}  # where timm finds weights


def _built(model: Published) -> DenseBackbone:
    """The first two layers with feature maps."""
    kind = DenseBackbone.families[model.family]
    return without_memory(kind, {**model.options, 'out_indices': (0, 1)})


def _cfgs(name: str, model: Published, built: DenseBackbone) -> dict[str, PretrainedCfg]:
    """timm's descriptions of the weights, by name and tag.

    Crops and interpolation are those of the authors' code, BiXT's the same at both sizes.
    ``license`` is empty, because timm would write its own.
    """
    common = dict(
        crop_pct=built.crop_pct,
        classifier='head',
        first_conv=first_convolution(built),
        pool_size=None if _is_columnar(built) else (7, 7),
        license='',
    )
    cfgs = {
        f'{name}.{file.tag}': PretrainedCfg(
            url=file.url, input_size=(3, 384, 384) if '384' in file.tag else (3, 224, 224), **common
        )
        for file in model.files
        if file.tag
    }
    return cfgs or {name: PretrainedCfg(**common)}


def _is_columnar(built: DenseBackbone) -> bool:
    """Whether all feature maps have the same stride."""
    return len(set(built.out_strides)) == 1


def _entrypoint(
    name: str, model: Published, built: DenseBackbone, is_pyramid: bool
) -> Callable[..., nn.Module]:
    indices = 4 if _is_columnar(built) and not is_pyramid else range(4)  # 4: the last ones
    features = dict(out_indices=indices, feature_cls=Pyramid if is_pyramid else 'getter')
    kind = classifier_of(DenseBackbone.families[model.family])

    def create(
        pretrained: bool = False,
        pretrained_cfg: str | dict[str, Any] | PretrainedCfg | None = None,
        pretrained_cfg_overlay: dict[str, Any] | None = None,
        **options: Any,
    ) -> nn.Module:
        # others return the layers' outputs, which are tokens
        check_choice('feature_cls', options.get('feature_cls', 'getter'), ('getter',))
        if options.pop('output_stride', 32) != 32:  # of DeepLabV3, DeepLabV3+ and PAN
            raise NotImplementedError(f'{name} cannot replace strides by dilation (output_stride).')
        overlay = dict(pretrained_cfg_overlay or {})
        is_ours = isinstance(pretrained_cfg, str | None) and not overlay.keys() & SOURCE_KEYS
        if pretrained and is_ours:
            cfg = get_pretrained_cfg('.'.join(filter(None, (name, pretrained_cfg))))
            # timm can unpack only some of the files, and would mix up files of the same name
            if cfg is not None and cfg.url:
                overlay['file'] = str(find_file(cfg.url))
        with stand_ins():  # for the authors' files
            return build_model_with_cfg(
                kind,
                name,
                pretrained,
                pretrained_cfg=pretrained_cfg,
                pretrained_cfg_overlay=overlay,
                pretrained_filter_fn=checkpoint_filter_fn,
                pretrained_strict=built.pretrained_strict,
                feature_cfg=dict(features),
                **{**model.options, **options},
            )

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f'mmbixt.{model.family} with {model.options}, as a model of timm.'
    return create


default_cfgs = {}


def register(model: Published) -> None:
    """Add a model to timm's registry, and a pyramid of it if its feature maps have one stride."""
    built = _built(model)
    names = {} if model.timm_has_it else {model.name: False}
    if _is_columnar(built):
        names[f'{model.name}_pyramid'] = True
    for name, is_pyramid in names.items():
        default_cfgs.update(generate_default_cfgs(_cfgs(name, model, built)))
        globals()[name] = register_model(_entrypoint(name, model, built, is_pyramid))


for _model in PUBLISHED:
    register(_model)

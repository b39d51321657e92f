"""The names in timm's registry: one function for each, made from the list of published models."""

from collections.abc import Callable, Iterator
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
from mmbixt.checkpoints.loader import find_file
from mmbixt.checkpoints.sources import PUBLISHED, Published
from mmbixt.checkpoints.stand_ins import stand_ins
from mmbixt.timm.classifiers import CLASSIFIERS, checkpoint_filter_fn
from mmbixt.timm.pyramid import Pyramid

__all__: list[str] = []  # timm adds the names

SOURCE_KEYS = {'url', 'file', 'state_dict', 'hf_hub_id', 'source'}  # where timm finds weights


def _first_conv(model: Published) -> str:
    names = dict(BiFormer='downsample_layers.0.0', BiSASwin='patch_embed.projection')
    is_linear = model.family == 'BiXT' and model.options.get('patch_embed') != 'conv'
    return names.get(model.family, 'patch_embed.proj' if is_linear else 'patch_embed.proj.0.0')


def _cfgs(name: str, model: Published) -> dict[str, PretrainedCfg]:
    """timm's descriptions of the weights, by name and tag.

    Crops and interpolation are those of the authors' code, BiXT's the same at both sizes.
    ``license`` is empty, because timm would write its own.
    """
    common = dict(
        crop_pct=1.0 if model.family == 'XCiT' else 0.875,
        classifier='head',
        first_conv=_first_conv(model),
        pool_size=(7, 7) if model.family in ('BiFormer', 'BiSASwin') else None,
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


def _entrypoint(name: str, model: Published, is_pyramid: bool) -> Callable[..., nn.Module]:
    indices = 4 if model.family == 'BiXT' and not is_pyramid else range(4)  # 4: the last ones
    features = dict(out_indices=indices, feature_cls=Pyramid if is_pyramid else 'getter')

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
                CLASSIFIERS[model.family],
                name,
                pretrained,
                pretrained_cfg=pretrained_cfg,
                pretrained_cfg_overlay=overlay,
                pretrained_filter_fn=checkpoint_filter_fn,
                # BiSA-Swin may start from weights of Swin; the model itself compares the weights
                pretrained_strict=model.family != 'BiSASwin',
                feature_cfg=dict(features),
                **{**model.options, **options},
            )

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f'mmbixt.{model.family} with {model.options}, as a model of timm.'
    return create


def _names() -> Iterator[tuple[str, Published, bool]]:
    for model in PUBLISHED:
        if model.family in ('BiXT', 'BiFormer') or model.name == 'bisa_swin_tiny':
            yield model.name, model, False
        if model.family in ('BiXT', 'XCiT'):
            yield f'{model.name}_pyramid', model, True


default_cfgs = {}
for _name, _model, _is_pyramid in _names():
    default_cfgs.update(generate_default_cfgs(_cfgs(_name, _model)))
    globals()[_name] = register_model(_entrypoint(_name, _model, _is_pyramid))

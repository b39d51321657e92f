"""What a set of weights seems to be, in words, for error messages."""

import re
from collections import Counter
from collections.abc import Mapping

from torch import Tensor

# first match wins: (a key that only this family has, its name)
_FAMILIES = (
    (r'cross_attention_latents_token', 'BiXT'),
    (r'cls_attn_blocks|pos_embeder\.|blocks\.\d+\.local_mp\.', 'XCiT'),
    (r'attn\.lepe\.|extra_norms\.', 'BiFormer'),
    (r'relative_position_bias_table', 'Swin Transformer'),
    (r'layers?\.?\d+\.\d+\.conv\d\.', 'ResNet'),
    (r'stages\.\d+\.(blocks\.)?\d+\.(depthwise_conv|dwconv)', 'ConvNeXt'),
    (r'(blocks|layers)\.\d+\.attn\.', 'ViT or DeiT'),
)
_PARTS = ('backbone', 'neck', 'decode_head', 'auxiliary_head', 'rpn_head', 'roi_head', 'bbox_head')


def describe(state: Mapping[str, Tensor]) -> str:
    """For example 'BiXT, width 192, 12 layers and a last one that updates only latents'."""
    if not state:
        return 'empty'
    parts = [part for part in _PARTS if any(key.startswith(f'{part}.') for key in state)]
    if parts:
        return f'a whole mm model ({", ".join(parts)})'
    names = '\n'.join(state)
    family = next((name for key, name in _FAMILIES if re.search(key, names)), None)
    if family is None:
        return f'something unknown, with weights like {", ".join(list(state)[:3])}'
    return ', '.join([family, *_dimensions(state)])


def stages_of(shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, int]]:
    """Blocks and width of each stage of a hierarchical model."""
    pattern = re.compile(r'(?:stages|layers)\.(\d+)\.(?:blocks\.)?\d+\.norm1\.weight$')
    widths = [(int(m[1]), size[0]) for key, size in shapes.items() if (m := pattern.match(key))]
    return [(blocks, width) for (_, width), blocks in sorted(Counter(widths).items())]


def _dimensions(state: Mapping[str, Tensor]) -> list[str]:
    facts = []
    stages = stages_of({key: tuple(value.shape) for key, value in state.items()})
    latents = state.get('latents')
    if stages:
        blocks, widths = (' + '.join(map(str, numbers)) for numbers in zip(*stages, strict=True))
        return [f'{blocks} blocks', f'widths {widths.replace(" +", ",")}']
    if latents is not None:
        facts.append(f'width {latents.shape[-1]}, {latents.shape[-2]} latents')
    elif norm := next((n for n in ('norm.weight', 'blocks.0.norm1.weight') if n in state), None):
        facts.append(f'width {state[norm].shape[0]}')
    layers = {match[1] for key in state if (match := re.match(r'blocks\.(\d+)\.', key))}
    one_sided = {key for key in state if key.endswith('r_latents.weight')}
    if layers:
        facts.append(f'{len(layers) - len(one_sided)} layers')
    if one_sided:
        facts.append('then one that updates only latents')
    return facts

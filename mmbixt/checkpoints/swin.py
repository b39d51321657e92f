"""Swin Transformer: from Microsoft's and timm's layouts to OpenMMLab's, which is ours."""

import re
from collections.abc import Collection, Mapping

from torch import Tensor

from mmbixt.checkpoints.state_dict import Conversion, last_number, translate

_CLASSIFIER = re.compile(r'^(norm|head)\.')
_STAGE = re.compile(r'^stages\.(\d+)\.')
_OUTPUT_NORM = re.compile(r'^norm\d+\.')
_RENAMES = (
    (re.compile(r'^layers\.'), 'stages.'),
    (re.compile(r'^patch_embed\.proj\.'), 'patch_embed.projection.'),
    (re.compile(r'(\.blocks\.\d+\.attn)\.(?!w_msa\.)'), r'\1.w_msa.'),
    (re.compile(r'\.mlp\.fc1\.'), '.ffn.layers.0.0.'),
    (re.compile(r'\.mlp\.fc2\.'), '.ffn.layers.1.'),
)

# see split_classifier; all published models have four stages
IN_CLASSIFIER = (r'^norm\.', 'backbone.norm3.')
# Swin Transformers have no inverse attention, and classifiers have no norms of outputs.
OPTIONAL = r'^norm\d+\.|\.w_msa\.(isa\.|lam_logit$)'


def convert_swin(state: Mapping[str, Tensor], expected: Collection[str]) -> Conversion:
    """The weights of a dense Swin Transformer from a state dict in any of the layouts.

    Dropped are the classifier, masks, and stages and output norms that the model does not have.
    """
    is_ours = 'patch_embed.projection.weight' in state
    # in timm's layout patch merging belongs to the stage after it, in the others to the one before
    is_timm = not is_ours and not any(key.startswith('layers.0.downsample.') for key in state)
    last = last_number(_STAGE, expected)

    def rename(key: str) -> str | None:
        if key.endswith('.attn_mask'):  # computed from the image size
            return None
        name = key
        if not is_ours:
            for pattern, replacement in _RENAMES:
                name = pattern.sub(replacement, name)
        stage = _STAGE.match(name)
        if stage is None:
            no_use = _CLASSIFIER.match(name) or _OUTPUT_NORM.match(name)
            return None if no_use and name not in expected else name
        number = int(stage[1])
        is_merging = name.startswith('downsample.', stage.end())
        if is_timm and is_merging:
            number -= 1
            name = f'stages.{number}.{name[stage.end() :]}'
        return None if number > last or (number == last and is_merging) else name

    def adapt(name: str, value: Tensor) -> Tensor:
        is_merging = re.match(r'stages\.\d+\.downsample\.(norm|reduction)\.', name) is not None
        return _pixels_last(value) if is_merging and not is_ours else value

    return translate(state, rename, adapt)


def advise_swin(
    state: Mapping[str, Tensor], expected: Collection[str], window_size: int
) -> str | None:
    """Advice for a file of other windows, or of other inverse attention."""
    tables = [value for key, value in state.items() if key.endswith('position_bias_table')]
    in_file = (int(tables[0].shape[0] ** 0.5) + 1) // 2 if tables and tables[0].ndim else None
    if in_file not in (None, window_size):
        return f'The file has windows of {in_file}: build the backbone with window_size={in_file}.'
    theirs, ours = _inverse_stages(state), _inverse_stages(expected)
    if theirs and theirs != ours:
        return (
            f'The file has inverse attention in the stages {theirs}, the model in {ours}: build '
            f'the backbone with bisa_stages={theirs} and the lam of the file.'
        )
    shares = [x for key, x in state.items() if key.endswith('lam_logit')]
    if shares and not any(key.endswith('lam_logit') for key in expected):
        listed = ', '.join(f'{float(x.float().sigmoid()):.2f}' for x in shares if not x.is_meta)
        return (
            f'The file has learned shares of self-attention ({listed}), the model a fixed one: '
            "build the backbone with lam='learned'."
        )
    return None


def _inverse_stages(names: Collection[str]) -> tuple[int, ...]:
    """The stages with inverse attention, from 0."""
    stages = (_STAGE.match(key) for key in names if '.w_msa.isa.' in key)
    return tuple(sorted({int(stage[1]) for stage in stages if stage}))


def _pixels_last(value: Tensor) -> Tensor:
    """Reorder the inputs of patch merging, (...,4C) to (...,4C).

    Microsoft (and timm) concatenate the channels of four pixels, column by column: (...,4,C).
    OpenMMLab has the four pixels of each channel, row by row: (...,C,4).
    """
    if value.ndim == 0 or value.shape[-1] % 4:
        return value  # not such a weight; it will be refused
    pixels = value.unflatten(-1, (4, -1))[..., [0, 2, 1, 3], :]
    return pixels.transpose(-2, -1).flatten(-2)

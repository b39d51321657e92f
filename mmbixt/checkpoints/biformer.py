"""BiFormer: from the authors' layouts to ours, which is the layout of their main model."""

import re
from collections.abc import Collection, Mapping

from torch import Tensor

from mmbixt.checkpoints.state_dict import Conversion, last_number, translate

_CLASSIFIER = re.compile(r'^(norm|head)\.')
_RENAMES = (  # of the Swin-like models
    (re.compile(r'^(stages\.\d+)\.blocks\.'), r'\1.'),
    (re.compile(r'\.mlp\.2\.'), '.mlp.3.'),
    (re.compile(r'\.attn\.qkv_linear\.'), '.attn.qkv.qkv.'),
    (re.compile(r'\.attn\.output_linear\.'), '.attn.wo.'),
)
_PART = re.compile(r'^(?:downsample_layers|stages|extra_norms)\.(\d+)\.')

IN_CLASSIFIER = (r'^norm\.', 'neck.norm.')  # see split_classifier
# Files of classifiers have no norms of the outputs of stages.
OPTIONAL = r'^extra_norms\.\d+\.|num_batches_tracked$'


def convert_biformer(
    state: Mapping[str, Tensor], expected: Collection[str], code: str
) -> Conversion:
    """The weights of a dense BiFormer from the state dict of a classifier or of a dense model.

    The classifier is dropped, and so are stages and output norms that the model does not have.
    Weights of another code base than the model's ``code`` have the same shapes but another meaning:
    they keep their names, which do not match, so that loading them is an error.
    """
    last = last_number(_PART, expected)
    renames = _RENAMES if _code_of(state) in (None, code) else ()

    def rename(key: str) -> str | None:
        if _CLASSIFIER.match(key):
            return None
        for pattern, replacement in renames:
            key = pattern.sub(replacement, key)
        part = _PART.match(key)
        no_norm = key.startswith('extra_norms.') and key not in expected
        return None if no_norm or (part and int(part[1]) > last) else key

    def adapt(name: str, value: Tensor) -> Tensor:
        # in the channels-first code linear layers are 1 x 1 convolutions
        is_linear = re.search(r'\.(qkv|wo|proj|mlp\.\d)\.weight$', name) is not None
        return value.flatten(1) if is_linear else value

    return translate(state, rename, adapt)


def advise_biformer(state: Mapping[str, Tensor], code: str) -> str | None:
    """The ``arch`` of a file of another code base; None if the code base is the model's."""
    theirs = _code_of(state)
    if theirs not in (None, code):
        return f'The file is of arch={theirs!r}.'
    if code != 'biformer' and any('.pos_embed.' in key for key in state):
        return "The file is of arch='tiny', 'small' or 'base'."
    return None


def _code_of(state: Mapping[str, Tensor]) -> str | None:
    """The code base of a file of a Swin-like model; None for the main code base and for ours."""
    if any('.attn.qkv_linear.' in key for key in state):
        return 'stl-nchw'
    is_stl = any(re.match(r'stages\.\d+\.blocks\.\d+\.attn\.lepe', key) for key in state)
    return 'stl' if is_stl else None

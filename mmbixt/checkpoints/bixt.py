"""BiXT: the authors' layout to ours. The names are theirs; the classifier's part is dropped."""

import re
from collections.abc import Collection, Mapping

from torch import Tensor

from mmbixt.checkpoints.state_dict import Conversion, last_number, translate

# the classifier, and the position grid, which the encoding computes for each image size
_CLASSIFIER = re.compile(r'^(fc_norm|head)\.|^fourier_pos_encode\.pos$')
_LATENT_UPDATE = re.compile(r'\.(self_attention_latents|attn\.proj_lat|\w+_lat)\.')
_LAYER = re.compile(r'^blocks\.(\d+)\.')

IN_CLASSIFIER = (r'^fc_norm\.', 'neck.fc_norm.')  # see split_classifier
# No published file has the local patch interaction of the paper's "+LPI".
OPTIONAL = r'^blocks\.\d+\.local_patch_interaction\.|num_batches_tracked$'


def convert_bixt(state: Mapping[str, Tensor], expected: Collection[str]) -> Conversion:
    """The weights that a dense BiXT takes from a state dict in the authors' layout.

    Dropped knowingly: the classifier; a stored position grid; layers after the last one that the
    model has, among them the file's own last, which updates only the latents; the latents' update
    in the model's last layer if the model goes without.
    """
    depth = 1 + last_number(_LAYER, expected)

    def rename(key: str) -> str | None:
        if key in expected:
            return key
        layer = _LAYER.match(key)
        if layer is None:
            return None if _CLASSIFIER.match(key) else key
        is_last = int(layer[1]) == depth - 1
        is_dropped = int(layer[1]) >= depth or (is_last and _LATENT_UPDATE.search(key))
        return None if is_dropped else key

    return translate(state, rename)


def advise_bixt(state: Mapping[str, Tensor], expected: Collection[str]) -> str | None:
    """What to do about the commonest misfit: a file with too few layers for dense use."""
    one_sided = [int(_LAYER.match(key)[1]) for key in state if key.endswith('r_latents.weight')]
    if not one_sided or min(one_sided) > last_number(_LAYER, expected):
        return None
    return (
        f'Layer {one_sided[0] + 1} of the file updates only the latents, so it fills a dense model '
        f'of {one_sided[0]} layers: build the backbone with depth={one_sided[0]}.'
    )

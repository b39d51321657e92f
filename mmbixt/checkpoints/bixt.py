"""BiXT: from the authors' layout to ours. Names are the same; the classifier is dropped."""

import re
from collections.abc import Collection, Mapping

from torch import Tensor

from mmbixt.checkpoints.state_dict import Conversion, last_number, translate

# the classifier, and the grid of positions, which our encoding computes for each image size
_CLASSIFIER = re.compile(r'^(fc_norm|head)\.|^fourier_pos_encode\.pos$')
_LATENT_UPDATE = re.compile(r'\.(self_attention_latents|attn\.proj_lat|\w+_lat)\.')
_LAYER = re.compile(r'^blocks\.(\d+)\.')

IN_CLASSIFIER = (r'^fc_norm\.', 'neck.fc_norm.')  # see split_classifier
# No published file has the local patch interaction of the paper's "+LPI".
OPTIONAL = r'^blocks\.\d+\.local_patch_interaction\.|num_batches_tracked$'


def convert_bixt(state: Mapping[str, Tensor], expected: Collection[str]) -> Conversion:
    """The weights of a dense BiXT from a state dict in the authors' layout.

    Dropped are the classifier, a stored grid of positions, layers beyond the depth of the model
    (among them the last layer of the file, which updates only the latents), and the update of the
    latents in the last layer of a model that has none.
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
    """Advice for a file with fewer layers than the model; None if it has enough."""
    one_sided = [int(_LAYER.match(key)[1]) for key in state if key.endswith('r_latents.weight')]
    if not one_sided or min(one_sided) > last_number(_LAYER, expected):
        return None
    return (
        f'Layer {one_sided[0] + 1} of the file updates only the latents, so the file has the '
        f'weights of {one_sided[0]} layers of a dense model: set depth={one_sided[0]}.'
    )

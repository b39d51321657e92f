"""Official state dicts with random values, or on the meta device where only names matter."""

import io
import zipfile

import torch
from helpers import official_shapes
from reference import fill

# of the classifiers whose logits are goldens: golden, batch and side of the image, container of the
# weights in the file, options of the backbone
LOGITS = {
    'xcit_tiny_12_p16': ('logits__64x64', 2, 64, 'model', {}),
    'bixt_ti_l64_p16': ('logits__64x64', 2, 64, 'state_dict', {}),
    'bixt_ti_cnv_l64_p16': ('logits__64x64', 2, 64, None, {}),
    'biformer_tiny': ('logits__224x224', 1, 224, 'model', {}),
    'biformer_stl': ('nwin8__128x128', 1, 128, None, dict(num_regions=8)),
    'bisa_swin_tiny_additive': (
        *('logits__224x224', 1, 224, 'model'),
        dict(projection='additive', lam='learned'),
    ),
}


def random_state(layout):
    """Random weights without computed buffers; faster than ``official_state``."""
    shapes = official_shapes(layout).items()
    return {key: torch.randn(shape) for key, shape in shapes if key.split('.')[-1] not in fill.KEEP}


def meta_state(layout):
    """Weights without values: misfits are refused before values are read."""
    return {k: torch.empty(shape, device='meta') for k, shape in official_shapes(layout).items()}


def build_meta(model, **options):
    with torch.device('meta'):
        return model(**options)


class Calls:
    """Pickled as a call of a function, and a state that its result gets."""

    def __init__(self, function, *arguments, state=None):
        self.call = (function, arguments, *([] if state is None else [state]))

    def __reduce__(self):
        return self.call


def saved(value, **options):
    """The bytes of a checkpoint."""
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def zipped(records, compression=zipfile.ZIP_DEFLATED):
    """The bytes of a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w', compression) as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return buffer.getvalue()

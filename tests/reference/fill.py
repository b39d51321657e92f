"""Deterministic weights and inputs for golden tests.

Pure functions of a weight's name and shape, or of a shape and a seed, through numpy's legacy
``RandomState``, whose stream numpy keeps the same in all versions. Names are those of the
*reference* layout (see ``layouts.json.xz``): a model with other names is filled through its own
conversion, which the golden test thus covers, too.
"""

import zlib

import numpy as np

# computed buffers; "pos" is the position grid of BiXT
KEEP = {'num_batches_tracked', 'relative_position_index', 'attn_mask', 'pos'}
TOKENS = {'cls_token', 'latents', 'relative_position_bias_table'}


def fill_value(key, shape):
    """A float32 array for a weight, or None for a computed buffer, which stays as it is.

    One draw for each weight; computed in float64 and rounded once. The first rule that fits counts.
    Matrices are scaled by shape[1:] literally, also those of transposed convolutions.
    """
    shape = tuple(map(int, shape))
    leaf = key.rsplit('.', 1)[-1]
    if leaf in KEEP:
        return None
    n = np.asarray(np.random.RandomState(zlib.crc32(key.encode())).standard_normal(shape))
    is_scale = not shape or leaf == 'temperature' or leaf.startswith('gamma')  # of a layer
    if leaf == 'running_var':
        out = 1 + 0.1 * np.abs(n)
    elif is_scale or (len(shape) == 1 and leaf == 'weight'):  # of a norm
        out = 1 + 0.1 * n
    elif leaf in TOKENS:
        out = 0.5 * n
    elif leaf in ('bias', 'running_mean'):
        out = 0.1 * n
    else:
        out = n / np.sqrt(np.prod(shape[1:], dtype=np.float64))
    return np.asarray(out, dtype=np.float32)


def fill_numpy(shapes):
    """Arrays by name, of shapes by name; without the computed buffers."""
    filled = {key: fill_value(key, shape) for key, shape in shapes.items()}
    return {key: value for key, value in filled.items() if value is not None}


def fill_module(module):
    """Fill a torch module in place, under the names of its own state dict."""
    import torch

    shapes = {key: value.shape for key, value in module.state_dict().items()}
    filled = {key: torch.from_numpy(value) for key, value in fill_numpy(shapes).items()}
    module.load_state_dict({**module.state_dict(), **filled})
    return module


def tensor(shape, seed=0):
    """Standard normal float32 array."""
    return np.random.RandomState(seed).standard_normal(shape).astype(np.float32)


def image(n, h, w, seed=0):
    """Standard normal float32 NCHW input with three channels."""
    return tensor((n, 3, h, w), seed)

"""Deterministic weight fill and deterministic inputs for golden tests.

Everything here is a pure function of its arguments (and numpy's legacy
``RandomState`` stream, which numpy keeps bit-stable across versions).  No
dependency on the order of keys, on torch's generator, or on the device.

Weight fill
-----------
``fill_value(key, shape)`` gives the float32 array for one state-dict entry, or
``None`` when the entry has to be left alone.  The generator is
``numpy.random.RandomState(zlib.crc32(key.encode()))`` and exactly one draw
``n = rng.standard_normal(shape)`` (float64, C order) is made per key.  The
value is computed in float64 and rounded once to float32.  The rules are tried
in this order; ``leaf`` is the part of the key after the last dot:

1. leaf in ``KEEP`` (``num_batches_tracked``, ``relative_position_index``,
   ``attn_mask``, ``relative_coords_table``, ``pos``): left alone.  Those are
   computed buffers (``...fourier_pos_encode.pos`` is BiXT's position grid).
2. leaf == ``running_mean``: ``0.1 * n``
3. leaf == ``running_var``: ``1 + 0.1 * |n|``
4. ``temperature`` in leaf, or leaf in ``SCALARS`` (``lam``, ``lambda_``), or a
   0-d entry: ``1 + 0.1 * n``
5. leaf starts with ``gamma`` (layer scale, whatever its shape):
   ``1 + 0.1 * n``
6. leaf in ``TOKENS`` (``cls_token``, ``dist_token``, ``latents``,
   ``pos_embed``, ``absolute_pos_embed``, ``relative_position_bias_table``):
   ``0.5 * n``
7. leaf ends with ``bias``: ``0.1 * n``
8. 1-d and leaf ends with ``weight`` (norm scales): ``1 + 0.1 * n``
9. ndim >= 2: ``n / sqrt(prod(shape[1:]))``.  Note that this uses shape[1:]
   literally, also for transposed convolutions (whose shape is in, out, kh,
   kw) and for the (d_s, d_s, d_v) tensor G of inverse self-attention.
10. anything else (other 1-d entries): ``0.5 * n``

Keys are those of the *reference* layout (see ``layouts.json.xz``); a model with
other names has to be filled through its own key conversion, so that a golden
test also covers the conversion.

Inputs
------
``tensor(shape, seed)`` is ``RandomState(seed).standard_normal(shape)`` rounded
to float32, ``image(n, h, w, seed)`` is ``tensor((n, 3, h, w), seed)``.
"""

import zlib

import numpy as np

KEEP = frozenset(
    ('num_batches_tracked', 'relative_position_index', 'attn_mask', 'relative_coords_table', 'pos')
)
TOKENS = frozenset(
    (
        'cls_token',
        'dist_token',
        'latents',
        'pos_embed',
        'absolute_pos_embed',
        'relative_position_bias_table',
    )
)
SCALARS = frozenset(('lam', 'lambda_'))


def fill_value(key, shape):
    """float32 array for a state-dict entry, None if it must stay as it is."""
    shape = tuple(int(s) for s in shape)
    leaf = key.rsplit('.', 1)[-1]
    if leaf in KEEP:
        return None
    rng = np.random.RandomState(zlib.crc32(key.encode()) & 0xFFFFFFFF)
    n = np.asarray(rng.standard_normal(shape), dtype=np.float64)
    if leaf == 'running_mean':
        out = 0.1 * n
    elif leaf == 'running_var':
        out = 1 + 0.1 * np.abs(n)
    elif 'temperature' in leaf or leaf in SCALARS or len(shape) == 0 or leaf.startswith('gamma'):
        out = 1 + 0.1 * n
    elif leaf in TOKENS:
        out = 0.5 * n
    elif leaf.endswith('bias'):
        out = 0.1 * n
    elif len(shape) == 1 and leaf.endswith('weight'):
        out = 1 + 0.1 * n
    elif len(shape) >= 2:
        out = n / np.sqrt(np.prod(shape[1:], dtype=np.float64))
    else:
        out = 0.5 * n
    return np.asarray(out, dtype=np.float32)


def fill_numpy(shapes):
    """dict key -> shape  to  dict key -> float32 array (skipped keys absent)."""
    out = {}
    for key, shape in shapes.items():
        value = fill_value(key, shape)
        if value is not None:
            out[key] = value
    return out


def fill_state_dict(state_dict):
    """New dict with every float tensor of a torch state dict replaced.

    Tensors of non-float dtype and the ``KEEP`` keys are passed through.  Dtype
    and device of each entry are kept.
    """
    import torch

    out = {}
    for key, value in state_dict.items():
        array = None
        if value.is_floating_point():
            array = fill_value(key, value.shape)
        if array is None:
            out[key] = value
        else:
            out[key] = torch.from_numpy(array).to(value)
    return out


def fill_module(module):
    """Fill a torch module in place through its own state-dict keys."""
    module.load_state_dict(fill_state_dict(module.state_dict()), strict=True)
    return module


def tensor(shape, seed=0):
    """Standard normal float32 array."""
    rng = np.random.RandomState(seed)
    return rng.standard_normal(tuple(shape)).astype(np.float32)


def image(n, h, w, seed=0):
    """Standard normal float32 NCHW input with three channels."""
    return tensor((n, 3, h, w), seed)

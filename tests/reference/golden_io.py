"""Reading a golden file and comparing with it.

A large tensor is stored as crops and statistics, and compared through all of them.
"""

import json

import numpy as np


class Golden:
    def __init__(self, path):
        with np.load(path) as f:  # no pickles inside
            self.data = {k: f[k] for k in f.files if k != 'note'}
            self.note = json.loads(str(f['note']))

    def parts(self, key, array):
        """(reference, ours) of each stored piece of a tensor: maps (B,C,H,W) or tokens (B,N,C)."""
        if key in self.data:
            yield self.data[key], array
            return
        axes, names = ((2, 3), ('tl', 'br')) if array.ndim == 4 else ((1,), ('head', 'tail'))
        for name in names:
            piece = self.data[f'{key}__{name}']
            n, before = piece.shape[axes[0]], (slice(None),) * axes[0]
            inside = slice(n) if name == names[0] else slice(-n, None)
            yield piece, array[before + (inside,) * len(axes)]
        yield self.data[key + '__mean'], array.astype(np.float64).mean(axes)
        yield self.data[key + '__std'], array.astype(np.float64).std(axes)

    def check(self, key, array):
        """Largest difference to the reference, over the largest value of all of the reference."""
        shape = tuple(self.note['tensors'][key]['shape'])
        if array.shape != shape:
            raise ValueError(f'{key}: shape {array.shape}, reference {shape}')
        scale = self.note['tensors'][key]['absmax']
        return max(
            float(np.abs(r.astype(np.float64) - o).max()) for r, o in self.parts(key, array)
        ) / max(scale, 1e-12)

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

    def shape(self, key):
        return tuple(self.note['tensors'][key]['shape'])

    def parts(self, key, array):
        """(reference, ours) of each stored piece of a tensor."""
        d, a = self.data, np.asarray(array)
        if key in d:
            yield d[key], a
            return
        a64 = a.astype(np.float64)
        axes = (2, 3) if a.ndim == 4 else (1,)
        if key + '__tl' in d:
            n = d[key + '__tl'].shape[-1]
            yield d[key + '__tl'], a[:, :, :n, :n]
            yield d[key + '__br'], a[:, :, -n:, -n:]
        else:
            n = d[key + '__head'].shape[1]
            yield d[key + '__head'], a[:, :n]
            yield d[key + '__tail'], a[:, -n:]
        yield d[key + '__mean'], a64.mean(axes)
        yield d[key + '__std'], a64.std(axes)

    def check(self, key, array):
        """Largest difference to the reference, over the largest value of all of the reference."""
        array = np.asarray(array)
        if tuple(array.shape) != self.shape(key):
            raise ValueError(f'{key}: shape {array.shape}, reference {self.shape(key)}')
        scale = self.note['tensors'][key]['absmax']
        return max(
            float(np.abs(r.astype(np.float64) - o).max()) for r, o in self.parts(key, array)
        ) / max(scale, 1e-12)

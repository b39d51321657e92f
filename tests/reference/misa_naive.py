"""Inverse self-attention (ISA / MISA) and BiSA, written naively in float64.

A literal reading of Algorithm 1, Eq. (2), Eq. (3) and the paragraph "Multi-Headed Inverse
Self-Attention" of "Bi-Directional Self-Attention for Vision Transformers". Slow on purpose: what
fast implementations are compared with.

Reading chosen (one window of N tokens x (N, C), h heads, d_k = d_s = d_v = C/h):

* scores (shared by both branches, Figure 1), rows i = queries, columns j = keys:
  ``M[i, j] = q_i . k_j / sqrt(d_k) (+ relative position bias) (+ shift mask)``
* SA ("Col-Softmax" in the paper): normalise over the keys j, each row sums to one. ISA
  ("Row-Softmax" in the paper, ``dim=0`` in Algorithm 1): normalise over the queries i, each column
  sums to one; the rows need not.
* ``Q^ = gelu(x W_Q2)``, ``V^ = gelu(x W_V)``: per head (C -> d_s), exact GELU, not the projections
  used by SA.
* ``W_{Q|V}[j] = sum_a V^[j, a] G[a]`` with G (d_s, d_s, d_v) shared by heads; first axis of G <-
  value, second axis <- query, third axis = output.
* ``R[i, j] = Q^[i] W_{Q|V}[j]``; ``ISA[i] = sum_j L[i, j] R[i, j]``.
* heads are concatenated; BiSA = lam * MSA + (1 - lam) * MISA; one output projection after that (for
  an affine map and no norm in between this equals projecting both before combining them).
"""

import math

import numpy as np


def gelu(x):
    erf = np.vectorize(math.erf)
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def softmax(a, axis):
    e = np.exp(a - a.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def linear(x, weight, bias=None):
    y = x @ weight.T
    return y if bias is None else y + bias


def heads(x, h):
    """(N, h * d) -> (h, N, d)"""
    n, c = x.shape
    return x.reshape(n, h, c // h).transpose(1, 0, 2)


def score_matrix(x, w_q, b_q, w_k, b_k, h, bias=None, mask=None):
    q, k = heads(linear(x, w_q, b_q), h), heads(linear(x, w_k, b_k), h)
    m = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    if bias is not None:
        m = m + bias
    if mask is not None:
        m = m + mask
    return m


def msa(m, v):
    """m (h, N, N), v (h, N, d_v) -> (N, h * d_v)"""
    out = softmax(m, axis=2) @ v
    return out.transpose(1, 0, 2).reshape(out.shape[1], -1)


def misa_naive(m, q_hat, v_hat, g):
    """Loops over heads, values and queries; returns (N, h * d_v)."""
    h, n, _ = q_hat.shape
    weights = softmax(m, axis=1)  # over queries
    out = np.zeros((h, n, g.shape[2]))
    for head, j in np.ndindex(h, n):
        w_qv = sum(value * matrix for value, matrix in zip(v_hat[head, j], g, strict=True))
        for i in range(n):
            out[head, i] += weights[head, i, j] * (q_hat[head, i] @ w_qv)
    return out.transpose(1, 0, 2).reshape(n, -1)


def relative_position_index(w):
    """Row-major (w*w, w*w) index into a (2w-1)^2 table, Swin convention."""
    r = np.arange(w)
    ys, xs = [a.reshape(-1) for a in np.meshgrid(r, r, indexing='ij')]
    dy = ys[:, None] - ys[None, :] + w - 1
    dx = xs[:, None] - xs[None, :] + w - 1
    return dy * (2 * w - 1) + dx


def corner_mask(w, shift, value=-100.0):
    """Mask of the last (bottom-right) window of a shifted partition."""
    r = (np.arange(w) >= w - shift).astype(int)
    region = (2 * r[:, None] + r[None, :]).reshape(-1)
    return np.where(region[:, None] == region[None, :], 0.0, value)

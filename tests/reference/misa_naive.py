"""Inverse self-attention (ISA / MISA), written naively in float64.

A literal reading of Algorithm 1, Eq. (2), Eq. (3) and the paragraph "Multi-Headed Inverse
Self-Attention" of "Bi-Directional Self-Attention for Vision Transformers". Slow on purpose: what
fast implementations are compared with. For one window of N tokens and h heads of width d:

* scores ``m`` (h, N, N) are shared by both branches (Figure 1); rows i are queries, columns j keys.
* SA ("Col-Softmax" in the paper) normalises over the keys j: each row sums to one. ISA
  ("Row-Softmax" in the paper, ``dim=0`` in Algorithm 1) normalises over the queries i: each column
  sums to one.
* ``Q^ = gelu(x W_Q2)``, ``V^ = gelu(x W_V)`` are not the projections used by SA.
* ``W_{Q|V}[j] = sum_a V^[j, a] G[a]`` with G (d_s, d_s, d_v) shared by heads; first axis of G <-
  value, second axis <- query, third axis = output.
* ``R[i, j] = Q^[i] W_{Q|V}[j]``; ``ISA[i] = sum_j L[i, j] R[i, j]``.
"""

import numpy as np


def softmax(a, axis):
    e = np.exp(a - a.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


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

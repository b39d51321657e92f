"""Inverse self-attention, in parallel with self-attention and on the same scores (BiSA).

In self-attention each query attends to the values. In inverse self-attention each value attends to
the queries: it projects them with a matrix that a hypernetwork G makes from the value. For each
head, with ``q_hat = gelu(isa.q(x))`` and ``v_hat = gelu(isa.v(x))``::

    S = q k^T / sqrt(d) + bias                                              (N,N)
    plain = softmax(S, over keys) v                                         (N,d)
    inverse[i] = sum_j L[i,j] q_hat[i] W_j,  L = softmax(S, over queries)   (N,d)
    W_j = sum_a v_hat[j,a] G[a]                                             (d,d)
    out = proj(lam * plain + (1 - lam) * inverse)

The implementation averages the values before the hypernetwork, which is linear in them:
``sum_j L[i,j] (v_hat[j] G) q_hat[i] = (sum_j L[i,j] v_hat[j]) G q_hat[i]``. This leaves one
bilinear product for each token, whose cost does not depend on the number of tokens that attend.

The authors' code has another inverse branch (``projection='additive'``), with a matrix B (d,d), in
which a value projects the query of its own token only::

    inverse[i] = q_hat[i] W_i + sum_j L[i,j] v_hat[j] B
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm
from torch.utils.checkpoint import checkpoint

from mmbixt.attention.windows import WindowAttention
from mmbixt.layers.definition import is_by_definition
from mmbixt.layers.initialise import init_linear
from mmbixt.layers.precision import without_autocast
from mmbixt.layers.softmax_attention import (
    SelfAttention,
    attention_scores,
    head_width,
    join_heads,
    split_heads,
)


def inverse_attention_definition(
    L: Tensor, q_hat: Tensor, v_hat: Tensor, G: Tensor, B: Tensor | None = None
) -> Tensor:
    """The inverse branch by the equations above.

    Args:
        L: (...,h,N,N), each column sums to one.
        q_hat, v_hat: (...,h,N,d), the queries that are projected, by the values.
        G: (d,d,d), shared by the heads; its axes belong to ``v_hat``, ``q_hat`` and the output.
        B: None, or (d,d) for the branch of the authors' code.

    Returns:
        (...,h,N,d).
    """
    if B is None:
        return torch.einsum('...ij,...ja,...ib,abc->...ic', L, v_hat, q_hat, G.to(q_hat.dtype))
    W = torch.einsum('...ja,abc->...jbc', v_hat, G.to(q_hat.dtype))
    return torch.einsum('...ib,...ibc->...ic', q_hat, W) + L @ v_hat @ B.to(q_hat.dtype)


# --- The bilinear product -------------------------------------------------------------------------


def bilinear(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """(...,a), (...,b) and a weight (a,b,c) to (...,c): ``sum_ab left[a] right[b] weight[a,b]``.

    The outer products of all rows are d times as large as the inputs. So they are computed for some
    rows at a time, whose products stay in the caches of a CPU, and again in the backward pass.
    """
    right = right.to(left.dtype)
    if torch.compiler.is_compiling():
        return _multiply(left, right, weight)
    values = 2**20 if left.device.type == 'cpu' else 2**27
    rows = max(1, values // (left.shape[-1] * right.shape[-1]))
    blocks = zip(*(x.flatten(0, -2).split(rows) for x in (left, right)), strict=True)
    multiply = _multiply
    if torch.is_grad_enabled() and any(x.requires_grad for x in (left, right, weight)):
        options = dict(use_reentrant=False, preserve_rng_state=False)
        multiply = partial(checkpoint, _multiply, **options)
    # the gradient of the weight is a sum over the blocks, at least in float32
    weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
    out = torch.cat([multiply(*block, weight) for block in blocks])
    return out.unflatten(0, left.shape[:-1])


def _multiply(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """:func:`bilinear` by one product of matrices."""
    outer = left.unsqueeze(-1) * right.unsqueeze(-2)
    return outer.flatten(-2) @ weight.to(left.dtype).flatten(0, 1)


# --- Modules --------------------------------------------------------------------------------------


class InverseAttention(nn.Module):
    """Inverse self-attention: two projections and a hypernetwork.

    As in the authors' code, and as the paper's number of parameters requires, it has projections of
    its own, of width C, one G for all heads, and neither an output projection nor scores of its
    own. (The text has scores from queries and keys of its own, W_Q^1 and W_K, and projections whose
    inputs are as wide as a head.) The projections have biases with 'additive', as in that code.
    Open is how G starts.
    """

    def __init__(self, channels: int, num_heads: int, projection: str = 'hypernetwork') -> None:
        super().__init__()
        self.num_heads = num_heads
        d = head_width(channels, num_heads)
        is_additive = projection == 'additive'
        self.q, self.v = (nn.Linear(channels, channels, bias=is_additive) for _ in range(2))
        self.B = nn.Parameter(torch.empty(d, d)) if is_additive else None
        self.G = nn.Parameter(torch.empty(d, d, d))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Small values, as in Swin; but queries of order one, and a G that keeps their scale.

        Both branches then have about the same scale at the start. With 'additive' all values are
        small, as in the authors' code.
        """
        if self.B is not None:
            init_linear(self.q)
            init_linear(self.v)
            for weight in (self.G, self.B):
                nn.init.trunc_normal_(weight, std=0.02)
            return
        nn.init.trunc_normal_(self.v.weight, std=0.02)
        nn.init.normal_(self.q.weight, std=self.q.in_features**-0.5)
        nn.init.normal_(self.G, std=2 / len(self.G))

    def forward(self, x: Tensor, scores: Tensor) -> Tensor:
        """Tokens (...,N,C) and scores (...,h,N,N), in whose precision it computes, to (...,N,C)."""
        heads = self.num_heads
        q_hat, v_hat = (gelu(layer(x)).to(scores.dtype) for layer in (self.q, self.v))
        with without_autocast(x):
            L = scores.softmax(dim=-2)
            (v_hat,) = split_heads(v_hat, 1, heads)
            if is_by_definition():
                (q_hat,) = split_heads(q_hat, 1, heads)
                return join_heads(inverse_attention_definition(L, q_hat, v_hat, self.G, self.B))
            q_hat, pooled = (y.unflatten(-1, (heads, -1)) for y in (q_hat, join_heads(L @ v_hat)))
            if self.B is not None:
                own = bilinear(v_hat.transpose(-3, -2), q_hat, self.G)
                return (own + pooled @ self.B.to(pooled.dtype)).flatten(-2)
            return bilinear(pooled, q_hat, self.G).flatten(-2)


class BidirectionalSelfAttention(SelfAttention):
    """BiSA: self-attention and inverse self-attention in parallel, with the same scores.

    As in the authors' code, positions and masks are in the scores of both branches, the output
    projection is after the combination, and a learned share is a sigmoid.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; d = C / h.
        lam: the share of self-attention: a number from 0 to 1, or 'learned'.
        lam_init: initial value of a learned ``lam``, above 0 and below 1.
        branch_norm: None, or 'layer', as in the authors' code, for a norm of each token over the
            channels in each branch before they are combined, without weights and with eps 1e-5.
        projection: 'hypernetwork' as above, or 'additive' as in the authors' code.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        lam: float | str = 0.5,
        lam_init: float = 0.5,
        branch_norm: str | None = None,
        projection: str = 'hypernetwork',
    ) -> None:
        super().__init__(channels, num_heads)
        check_options(lam, branch_norm, projection)
        self.branch_norm = branch_norm
        self.isa = InverseAttention(channels, num_heads, projection)
        self.fixed_lam = None if lam == 'learned' else lam
        if lam == 'learned':
            # a logit, so that lam stays between 0 and 1 in training; of shape (1,) for FSDP
            self.lam_logit = nn.Parameter(torch.full((1,), math.log(lam_init / (1 - lam_init))))

    @property
    def lam(self) -> float | Tensor:
        """The share of self-attention: a number, or a tensor (1,) if it is learned."""
        return self.lam_logit.sigmoid() if self.fixed_lam is None else self.fixed_lam

    def attend(self, tokens: Tensor, bias: Tensor | None) -> Tensor:
        """The module without its output projection, (...,N,C) to (...,N,C).

        Args:
            tokens: N that attend to one another, with at least one dimension of groups of them
                (images, windows).
            bias: is added to the scores: relative positions, masks; of a shape that broadcasts to
                (...,h,N,N). Each query needs a key, and each key a query, that is not hidden.
        """
        plain, inverse = self.branches(tokens, bias)
        if self.fixed_lam is not None:
            return torch.lerp(inverse, plain, self.fixed_lam)
        # half precision rounds 1 - lam in place of lam, which may start at 0.99
        rest = self.lam_logit.neg().sigmoid().to(plain.dtype)
        return plain + rest * (inverse - plain)

    def branches(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Self-attention and inverse self-attention, (...,N,C) each."""
        q, k, v = split_heads(self.qkv(x), 3, self.num_heads)
        with without_autocast(x):
            scores = attention_scores(q, k, self.scale, bias)
            plain = join_heads(scores.softmax(dim=-1) @ v)
        inverse = self.isa(x, scores)
        if self.branch_norm is None:
            return plain, inverse
        return tuple(layer_norm(y, y.shape[-1:]).to(v.dtype) for y in (plain, inverse))


class BidirectionalWindowAttention(WindowAttention, BidirectionalSelfAttention):
    """BiSA within square windows, with the arguments of both."""


def check_options(lam: float | str, branch_norm: str | None, projection: str) -> None:
    """Check the options of :class:`BidirectionalSelfAttention`."""
    for name, value, valid in (
        ('branch_norm', branch_norm, (None, 'layer')),
        ('projection', projection, ('hypernetwork', 'additive')),
    ):
        if value not in valid:
            raise ValueError(f'{name}={value!r} is not one of {", ".join(map(repr, valid))}.')
    if lam != 'learned' and not 0 <= lam <= 1:
        raise ValueError(f"lam={lam!r} must be a number from 0 to 1, or 'learned'.")

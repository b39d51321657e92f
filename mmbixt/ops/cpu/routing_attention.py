"""Routed attention of a few regions at a time, without the k-fold copy of keys and values.

The copies and scores of these regions are computed, used and dropped while they are in the cache of
the processor. The backward pass computes them again from queries, keys and values. Larger regions
are cut into pieces of queries, which share their routes.
"""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from mmbixt.ops.cpu.operator import Operator, Results, like
from mmbixt.ops.dispatch import scores_at_once
from mmbixt.ops.routing_attention.reference import Routing


def routing_attention_cpu(
    queries: Tensor, keys: Tensor, values: Tensor, routing: Routing
) -> Tensor:
    batch, regions = queries.shape[:2]
    hidden = None if routing.valid is None else ~routing.valid_of_routes().flatten(0, 1)
    # heads first: then the tokens of some regions are one matrix for each head
    queries, keys, values = (
        x.flatten(0, 1).permute(2, 0, 1, 3).contiguous() for x in (queries, keys, values)
    )
    rows = routing.rows(regions)
    (out,) = routed_attention(queries, keys, values, rows, hidden, routing.scale)
    return out.permute(1, 2, 0, 3).unflatten(0, (batch, regions))


def _forward(
    queries: Tensor, keys: Tensor, values: Tensor, rows: Tensor, hidden: Tensor | None, scale: float
) -> Results:
    """Regions (h,S,L,d) attend to the regions ``rows`` (S,k), except tokens ``hidden`` (S,kL)."""
    out = torch.empty_like(queries)
    pieces = Pieces.of(rows, hidden, keys)
    out_pieces, query_pieces = pieces.cut(out), pieces.cut(queries)
    for chunk in pieces.chunks():
        attention = pieces.attend(scale * query_pieces[:, chunk], keys, chunk)
        out_pieces[:, chunk] = attention @ _fetch(values, pieces.rows[chunk])
    return [out], []


def _backward(grads, kept, queries, keys, values, rows, hidden, scale) -> list[Tensor]:
    """The gradients of queries, keys and values."""
    grad_queries = torch.empty_like(queries)
    grad_keys, grad_values = torch.zeros_like(keys), torch.zeros_like(values)
    pieces = Pieces.of(rows, hidden, keys)
    grad_pieces, query_pieces = pieces.cut(grad_queries), pieces.cut(queries)
    grad = pieces.cut(grads[0].contiguous())
    for chunk in pieces.chunks():
        routed, scaled = pieces.rows[chunk], scale * query_pieces[:, chunk]
        attention = pieces.attend(scaled, keys, chunk)
        _add_fetched(grad_values, routed, attention.transpose(-2, -1) @ grad[:, chunk])
        grad_scores = grad[:, chunk] @ _fetch(values, routed).transpose(-2, -1)
        grad_scores = torch._softmax_backward_data(grad_scores, attention, -1, attention.dtype)
        grad_pieces[:, chunk] = scale * (grad_scores @ _fetch(keys, routed))
        _add_fetched(grad_keys, routed, grad_scores.transpose(-2, -1) @ scaled)
    return [grad_queries, grad_keys, grad_values]


class Pieces(NamedTuple):
    """The queries of S regions cut into P = S * number equal pieces, which share their routes.

    Attributes:
        rows: (P,k), the regions that a piece is routed to.
        hidden: (P,kL), True for tokens of these regions that are masked; None if none is.
        scores: number of scores of a piece, in all heads.
    """

    rows: Tensor
    hidden: Tensor | None
    scores: int

    @classmethod
    def of(cls, rows: Tensor, hidden: Tensor | None, keys: Tensor) -> 'Pieces':
        """The fewest pieces whose scores fit into the cache, for keys (h,S,L,d)."""
        heads, _, tokens, _ = keys.shape
        scores = heads * tokens * rows.shape[1] * tokens  # of a region
        wanted = min(-(-scores // scores_at_once()), tokens)
        number = next(n for n in range(wanted, tokens + 1) if tokens % n == 0)
        if number > 1:
            rows = rows.repeat_interleave(number, 0)
            hidden = None if hidden is None else hidden.repeat_interleave(number, 0)
        return cls(rows, hidden, scores // number)

    def cut(self, x: Tensor) -> Tensor:
        """A view (h,P,l,d) of (h,S,L,d)."""
        return x.view(len(x), len(self.rows), -1, x.shape[-1])

    def chunks(self) -> list[slice]:
        """Slices of as many pieces as have scores that fit into the caches together."""
        step = max(1, scores_at_once() // self.scores)
        return [slice(start, start + step) for start in range(0, len(self.rows), step)]

    def attend(self, queries: Tensor, keys: Tensor, chunk: slice) -> Tensor:
        """Attention of scaled queries of s pieces to the tokens they are routed to, (h,s,l,kL)."""
        scores = queries @ _fetch(keys, self.rows[chunk]).transpose(-2, -1)
        if self.hidden is not None:
            scores.masked_fill_(self.hidden[chunk, None], -torch.inf)
        return scores.softmax(-1)


def _fetch(x: Tensor, rows: Tensor) -> Tensor:
    """(h,S,L,d) to (h,s,kL,d): for each of s pieces the tokens of the regions it is routed to."""
    fetched = x.flatten(2).flatten(0, 1).index_select(0, _rows_of_heads(x, rows))
    return fetched.view(len(x), len(rows), -1, x.shape[-1])


def _add_fetched(total: Tensor, rows: Tensor, part: Tensor) -> None:
    """Add what was computed for fetched regions (h,s,kL,d) to all of them (h,S,L,d)."""
    table = total.view(-1, total[0, 0].numel())
    table.index_add_(0, _rows_of_heads(total, rows), part.reshape(-1, table.shape[1]))


def _rows_of_heads(x: Tensor, rows: Tensor) -> Tensor:
    """Indices (s,k) of regions of each head, among the regions of all heads (h,S,...)."""
    heads, regions = x.shape[:2]
    return (torch.arange(0, heads * regions, regions)[:, None] + rows.flatten()).flatten()


routed_attention = Operator(
    'routed_attention',
    _forward,
    _backward,
    fake=lambda queries, *_: (like(queries), []),
    differentiable=('queries', 'keys', 'values'),
    flops=lambda queries, keys, values, rows, *_: 4 * prod(queries) * rows[1] * queries[2],
    backward_cost=2.5,  # five products instead of two: the scores are computed again
)

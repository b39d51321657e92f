"""Routed attention of a few regions at a time, without the k-fold copy of keys and values.

The copies and scores of those few regions are made, used and dropped while they are in the cache of
the processor. The backward pass makes them again; it keeps queries, keys and values only. Regions
too large for that are cut into pieces of queries, which share their routes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mmbixt.ops.paths import calls_operators, is_eager
from mmbixt.ops.precision import is_autocast
from mmbixt.ops.routing_attention.regional import routing_attention_regional

SCORES = 2**19  # that exist at once for each thread: 2 MB in float32


def pays(queries: Tensor, routes: Tensor) -> bool:
    """On a CPU, where calls are cheap; GPUs have fused attention, exporters know nothing of ours.

    Large regions, of which one sees one, are few, hardly copied and best left to that as well.
    """
    _, _, tokens, heads, _ = queries.shape
    return (
        calls_operators()
        and queries.device.type == 'cpu'
        and queries.dtype in (torch.float32, torch.float64)
        and not is_autocast(queries)
        and (routes.shape[2] > 1 or not is_eager() or heads * tokens**2 <= _scores_at_once())
    )


@torch.library.custom_op('mmbixt::routed_attention', mutates_args=(), device_types='cpu')
def routed_attention(
    queries: Tensor, keys: Tensor, values: Tensor, rows: Tensor, hidden: Tensor | None
) -> Tensor:
    """Regions (h,S,L,d) attend to the regions ``rows`` (S,k), but for tokens ``hidden`` (S,kL).

    An operator, so that compilers call it as it is.
    """
    out = torch.empty_like(queries)
    pieces = Pieces.of(rows, hidden, keys)
    parts, given = pieces.cut(out), pieces.cut(queries)
    for chunk in pieces.chunks():
        attention = pieces.attend(given, keys, chunk)
        parts[:, chunk] = attention @ _fetch(values, pieces.rows[chunk])
    return out


@torch.library.custom_op('mmbixt::routed_attention_backward', mutates_args=(), device_types='cpu')
def routed_attention_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: Tensor,
    hidden: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values."""
    of_queries = torch.empty_like(queries)
    of_keys, of_values = torch.zeros_like(keys), torch.zeros_like(values)
    pieces = Pieces.of(rows, hidden, keys)
    parts, given, grad = (pieces.cut(x) for x in (of_queries, queries, grad.contiguous()))
    for chunk in pieces.chunks():
        routed = pieces.rows[chunk]
        attention = pieces.attend(given, keys, chunk)
        _return(of_values, routed, attention.transpose(-2, -1) @ grad[:, chunk])
        of_scores = grad[:, chunk] @ _fetch(values, routed).transpose(-2, -1)
        of_scores = torch._softmax_backward_data(of_scores, attention, -1, attention.dtype)
        parts[:, chunk] = of_scores @ _fetch(keys, routed)
        _return(of_keys, routed, of_scores.transpose(-2, -1) @ given[:, chunk])
    return of_queries, of_keys, of_values


@routed_attention.register_fake
def _(queries: Tensor, *_: Tensor | None) -> Tensor:
    return torch.empty_like(queries)


@routed_attention_backward.register_fake
def _(grad: Tensor, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x) for x in inputs[:3])


def _keep(ctx, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pass_back(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *routed_attention_backward(grad, *ctx.saved_tensors), None, None


routed_attention.register_autograd(_pass_back, setup_context=_keep)


class Pieces(NamedTuple):
    """The queries of S regions cut into P = S * number equal pieces, which share their routes.

    Attributes:
        rows: (P,k), the regions that a piece is routed to.
        hidden: (P,kL), True for tokens of theirs that it is not to see; None if it is to see all.
        number: pieces of a region.
        scores: of a piece, in all heads.
    """

    rows: Tensor
    hidden: Tensor | None
    number: int
    scores: int

    @classmethod
    def of(cls, rows: Tensor, hidden: Tensor | None, keys: Tensor) -> 'Pieces':
        """As few as have few enough scores, for keys (h,S,L,d)."""
        heads, _, tokens, _ = keys.shape
        scores = heads * tokens * rows.shape[1] * tokens  # of a region
        wanted = min(-(-scores // _scores_at_once()), tokens)
        number = next(n for n in range(wanted, tokens + 1) if tokens % n == 0)
        rows = rows.repeat_interleave(number, 0)
        hidden = None if hidden is None else hidden.repeat_interleave(number, 0)
        return cls(rows, hidden, number, scores // number)

    def cut(self, x: Tensor) -> Tensor:
        """A view (h,P,l,d) of (h,S,L,d)."""
        return x.view(len(x), len(self.rows), -1, x.shape[-1])

    def chunks(self) -> list[slice]:
        """As many pieces at a time as have few enough scores together."""
        step = max(1, _scores_at_once() // self.scores)
        return [slice(start, start + step) for start in range(0, len(self.rows), step)]

    def attend(self, queries: Tensor, keys: Tensor, chunk: slice) -> Tensor:
        """What queries of s pieces give to each token they are routed to, (h,s,l,kL)."""
        scores = queries[:, chunk] @ _fetch(keys, self.rows[chunk]).transpose(-2, -1)
        if self.hidden is not None:
            scores.masked_fill_(self.hidden[chunk, None], -torch.inf)
        return scores.softmax(-1)


def _scores_at_once() -> int:
    return SCORES * torch.get_num_threads()


def _fetch(x: Tensor, rows: Tensor) -> Tensor:
    """(h,S,L,d) to (h,s,kL,d): for each of s pieces the tokens of the regions it is routed to."""
    fetched = x.flatten(2).flatten(0, 1).index_select(0, _rows_of_heads(x, rows))
    return fetched.view(len(x), len(rows), -1, x.shape[-1])


def _return(total: Tensor, rows: Tensor, part: Tensor) -> None:
    """Add what was computed for fetched regions (h,s,kL,d) to all of them (h,S,L,d)."""
    table = total.view(-1, total[0, 0].numel())
    table.index_add_(0, _rows_of_heads(total, rows), part.reshape(-1, table.shape[1]))


def _rows_of_heads(x: Tensor, rows: Tensor) -> Tensor:
    """Regions (s,k) of each head, among those of all heads (h,S,...), one after another."""
    heads, regions = x.shape[:2]
    return (torch.arange(0, heads * regions, regions)[:, None] + rows.flatten()).flatten()


def routing_attention_chunked(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    routes: Tensor,
    scale: float,
    valid: Tensor | None,
) -> Tensor:
    """See :func:`mmbixt.ops.routing_attention`."""
    if not pays(queries, routes):
        return routing_attention_regional(queries, keys, values, routes, scale, valid)
    batch, regions = queries.shape[:2]
    rows = (routes + regions * torch.arange(batch)[:, None, None]).flatten(0, 1)
    hidden = None if valid is None else ~valid[routes].flatten(2).flatten(0, 1)
    # heads first: then the tokens of some regions are one matrix for each head
    queries, keys, values = (
        x.flatten(0, 1).permute(2, 0, 1, 3).contiguous() for x in (scale * queries, keys, values)
    )
    out = routed_attention(queries, keys, values, rows, hidden)
    return out.permute(1, 2, 0, 3).unflatten(0, (batch, regions))

"""Routed attention of a few regions at a time, without the k-fold copy of keys and values.

Only the copies for those few regions exist at once; they stay in the cache of the processor. The
backward pass fetches them again and keeps the queries, keys and values as they were projected.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmbixt.ops.paths import is_eager
from mmbixt.ops.routing_attention.regional import routing_attention_regional

ROUTED_VALUES = 2**19  # of keys, and as many of values, fetched together for each thread: 2 MB
aten = torch.ops.aten


def pays(queries: Tensor) -> bool:
    """On a CPU, where the fused attention can be told to keep nothing but sums."""
    return queries.device.type == 'cpu' and is_eager()


class ChunkedAttention(torch.autograd.Function):
    """Queries, keys, values (S,L,h,d) of all regions of all images to (S,L,h,d).

    Each region attends to the regions ``rows`` (S,k).
    """

    @staticmethod
    def forward(
        ctx,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        rows: Tensor,
        mask: Tensor | None,
        scale: float,
    ) -> Tensor:
        out = queries.new_empty(queries.shape)
        sums = []
        for chunk in _chunks(rows, keys):
            fetched = (_fetch(x, rows[chunk]) for x in (keys, values))
            part, log_sums = aten._scaled_dot_product_flash_attention_for_cpu(
                queries[chunk].transpose(1, 2), *fetched, attn_mask=_rows(mask, chunk), scale=scale
            )
            out[chunk] = part.transpose(1, 2)
            sums.append(log_sums)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(queries, keys, values, rows, mask, out, torch.cat(sums))
            ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, rows, mask, out, sums = ctx.saved_tensors
        grad_queries = torch.empty_like(out)
        grad_keys, grad_values = (x.new_zeros(x.shape) for x in (keys, values))
        for chunk in _chunks(rows, keys):
            fetched = (_fetch(x, rows[chunk]) for x in (keys, values))
            ours, *theirs = aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad[chunk].transpose(1, 2),
                queries[chunk].transpose(1, 2),
                *fetched,
                out[chunk].transpose(1, 2),
                sums[chunk],
                0.0,
                False,
                attn_mask=_rows(mask, chunk),
                scale=ctx.scale,
            )
            grad_queries[chunk] = ours.transpose(1, 2)
            for total, part in zip((grad_keys, grad_values), theirs, strict=True):
                part = part.transpose(1, 2).unflatten(1, (-1, total.shape[1])).flatten(0, 1)
                total.index_add_(0, rows[chunk].flatten(), part)
        return grad_queries, grad_keys, grad_values, None, None, None


def _chunks(rows: Tensor, keys: Tensor) -> list[slice]:
    values = ROUTED_VALUES * torch.get_num_threads()
    step = max(1, values // (rows.shape[1] * keys[0].numel()))
    return [slice(start, start + step) for start in range(0, len(rows), step)]


def _fetch(x: Tensor, rows: Tensor) -> Tensor:
    """(S,L,h,d) to (s,h,kL,d): for each of s regions the tokens of those it is routed to."""
    fetched = x.index_select(0, rows.flatten()).view(len(rows), -1, *x.shape[2:])
    return fetched.transpose(1, 2)


def _rows(mask: Tensor | None, chunk: slice) -> Tensor | None:
    return None if mask is None else mask[chunk]


def routing_attention_chunked(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    routes: Tensor,
    scale: float,
    valid: Tensor | None,
) -> Tensor:
    """See :func:`mmbixt.ops.routing_attention`."""
    if not pays(queries):
        return routing_attention_regional(queries, keys, values, routes, scale, valid)
    batch, regions, tokens = queries.shape[:3]
    first = torch.arange(batch, device=routes.device) * regions
    rows = (routes + first[:, None, None]).flatten(0, 1)
    mask = None
    if valid is not None:  # added to the scores, (S,1,L,kL)
        mask = torch.zeros(valid.shape, dtype=queries.dtype).masked_fill(~valid, -torch.inf)
        mask = mask[routes].flatten(2).flatten(0, 1)[:, None, None].expand(-1, 1, tokens, -1)
    tokens = (x.flatten(0, 1) for x in (queries, keys, values))
    return ChunkedAttention.apply(*tokens, rows, mask, scale).unflatten(0, (batch, regions))

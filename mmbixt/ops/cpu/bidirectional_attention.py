"""BiXT's attention with one exponential for both directions.

With the similarities S (M,N) of a head and its largest one s, and ``E = exp(S - s)``,

    latents' update = E v_tokens / (sums of E over the tokens)
    tokens' update = E^T v_latents / (sums of E over the latents)

so that there is one matrix, one exponential and no softmax: three products in place of four. E is
the only (M,N) matrix that is kept for the backward pass; with it are kept its sums, the inputs and
the results. Where all similarities of a latent or a token are so far below s that E would lose
their differences, two softmaxes are computed.
"""

from math import prod

import torch
from torch import Tensor

from mmbixt.ops.cpu.operator import Operator, Results, like

MIN_SUM = 1e-9  # of a row or column of E, whose largest value is 1; S then has lost 1e-6 at most


def bidirectional_attention_cpu(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor | None, scale: float
) -> tuple[Tensor | None, Tensor]:
    if v_tokens is None:
        # tokens first: a softmax over columns reads values that are far apart
        similarity = r_tokens @ (scale * r_latents).transpose(-2, -1)
        return None, similarity.softmax(dim=-1) @ v_latents
    r_latents, v_latents = (x.expand(r_tokens.shape[0], -1, -1, -1) for x in (r_latents, v_latents))
    # (B,N,h,d) for a view (B,N,C), of the results and the gradients
    inputs = (x.transpose(1, 2) for x in (r_latents, r_tokens, v_latents, v_tokens))
    for_latents, for_tokens = attend_both_ways(*inputs, scale)
    return for_latents.transpose(1, 2), for_tokens.transpose(1, 2)


def _forward(
    r_latents: Tensor, r_tokens: Tensor, v_latents: Tensor, v_tokens: Tensor, scale: float
) -> Results:
    """Latents (B,M,h,d) and tokens (B,N,h,d) to the updates of both.

    Kept are E (B,h,M,N) and its sums over the tokens and the latents; or S and sums of 0.
    """
    (batch, latents, heads, _), tokens = r_latents.shape, r_tokens.shape[1]
    for_latents, for_tokens = like(v_latents, v_tokens)
    matrix = r_tokens.new_empty(batch, heads, latents, tokens)
    over_tokens = r_tokens.new_empty(batch, heads, latents, 1)
    over_latents = r_tokens.new_empty(batch, heads, 1, tokens)
    images = (r_latents, r_tokens, v_latents, v_tokens, for_latents, for_tokens)
    for *of_image, E, rows, columns in zip(*images, matrix, over_tokens, over_latents, strict=True):
        r_lat, r_tok, v_lat, v_tok, out_lat, out_tok = (x.transpose(0, 1) for x in of_image)
        torch.bmm(scale * r_lat, r_tok.mT, out=E)
        largest = E.amax((1, 2), keepdim=True)
        E.sub_(largest).exp_()
        torch.sum(E, 2, keepdim=True, out=rows)
        torch.sum(E, 1, keepdim=True, out=columns)
        if min(rows.min(), columns.min()) > MIN_SUM:  # False for NaN
            torch.bmm(E, v_tok, out=out_lat).div_(rows)
            torch.bmm(E.mT, v_lat, out=out_tok).div_(columns.mT)
        else:
            S = torch.bmm(scale * r_lat, r_tok.mT, out=E)
            torch.bmm(S.softmax(2), v_tok, out=out_lat)
            torch.bmm(S.softmax(1).mT, v_lat, out=out_tok)
            rows.zero_()
            columns.zero_()
    return [for_latents, for_tokens], [matrix, over_tokens, over_latents]


def _backward(grads, kept, r_latents, r_tokens, v_latents, v_tokens, scale) -> list[Tensor]:
    """The gradients of the four inputs.

    With the gradients g and the updates u of both sides, rows of E divided by their sums are the
    attention over the tokens A, columns the attention over the latents B, and

        grad_S = A * (g_latents v_tokens^T - sum(g_latents u_latents, over d))
                 + B * (v_latents g_tokens^T - sum(g_tokens u_tokens, over d)^T)

    where one product with E serves both, if the g are divided by the sums before.
    """
    results = like(r_latents, r_tokens, v_latents, v_tokens)
    images = (r_latents, r_tokens, v_latents, v_tokens, *results, *grads, *kept[3:])
    for *of_image, E, rows, columns in zip(*images, *kept[:3], strict=True):
        r_lat, r_tok, v_lat, v_tok, *others = (x.transpose(0, 1) for x in of_image)
        grad_r_lat, grad_r_tok, grad_v_lat, grad_v_tok, g_lat, g_tok, u_lat, u_tok = others
        if rows.any():
            g_lat, g_tok = g_lat / rows, g_tok / columns.mT
            A = B = E
            grad_S = torch.bmm(v_lat, g_tok.mT).baddbmm_(g_lat, v_tok.mT)
            grad_S -= (g_lat * u_lat).sum(2, keepdim=True)
            grad_S -= (g_tok * u_tok).sum(2, keepdim=True).mT
            grad_S *= E
        else:
            A, B = E.softmax(2), E.softmax(1)
            grad_S = torch._softmax_backward_data(g_lat @ v_tok.mT, A, 2, A.dtype)
            grad_S += torch._softmax_backward_data(v_lat @ g_tok.mT, B, 1, B.dtype)
        torch.bmm(grad_S, r_tok, out=grad_r_lat).mul_(scale)
        torch.bmm(grad_S.mT, scale * r_lat, out=grad_r_tok)
        torch.bmm(B, g_tok, out=grad_v_lat)
        torch.bmm(A.mT, g_lat, out=grad_v_tok)
    return results


def _fake(r_latents, r_tokens, v_latents, v_tokens, scale) -> Results:
    (batch, latents, heads, _), tokens = r_latents.shape, r_tokens.shape[1]
    sizes = ((latents, tokens), (latents, 1), (1, tokens))
    matrices = [r_tokens.new_empty(batch, heads, *size) for size in sizes]
    return like(v_latents, v_tokens), matrices


attend_both_ways = Operator(
    'attend_both_ways',
    _forward,
    _backward,
    fake=_fake,
    differentiable=('r_latents', 'r_tokens', 'v_latents', 'v_tokens'),
    flops=lambda r_latents, r_tokens, *_: 6 * prod(r_tokens) * r_latents[1],
    keeps_results=True,
)

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from mmbixt.layers.linear import Linear
from mmbixt.ops.heads import join_heads, split_heads
from mmbixt.ops.inverse_attention import bidirectional_self_attention, self_attention
from mmbixt.ops.window_attention import (
    Scores,
    Windows,
    bidirectional_window_attention,
    window_attention,
)


class BidirectionalSelfAttention(nn.Module):
    """BiSA: self-attention and inverse self-attention side by side, on the same scores.

    In self-attention each query chooses among the values; in inverse self-attention each value
    chooses among the queries and projects those it has chosen, with a matrix made from the value.
    The branches are combined as ``lam * self + (1 - lam) * inverse`` before one output projection.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; d = C / h, the scores are scaled by ``d ** -0.5``.
        lam: the share of self-attention: a number from 0 to 1, or 'learned'. With 1 this is plain
            self-attention, without norms of branches: the inverse branch, which would never get a
            gradient, is not built.
        lam_init: where a learned ``lam`` starts, between 0 and 1. Near 1 (say 0.99) the weights of
            a plain self-attention continue without a jump.
        branch_norm: None, or 'instance' to normalise each channel of each branch over the tokens
            (no weights, eps 1e-5) before they are combined.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        lam: float | str = 0.5,
        lam_init: float = 0.5,
        branch_norm: str | None = None,
    ) -> None:
        super().__init__()
        if channels % num_heads:
            raise ValueError(f'{channels} channels cannot be split among {num_heads} heads.')
        check_branches(lam, lam_init, branch_norm)
        self.num_heads = num_heads
        self.scale = (channels // num_heads) ** -0.5
        self.branch_norm = branch_norm
        self.qkv = Linear(channels, 3 * channels)
        self.proj = Linear(channels, channels)
        self.isa = None if lam == 1 else InverseWeights(channels, num_heads)
        self.fixed_lam = None if lam == 'learned' else lam
        if lam == 'learned':
            # a logit, so that no step of the optimiser leaves [0, 1]; of shape (1,) for FSDP
            self.lam_logit = nn.Parameter(torch.full((1,), math.log(lam_init / (1 - lam_init))))

    @property
    def lam(self) -> float | Tensor:
        """The share of self-attention: a number, or a tensor (1,) if it is learned."""
        return self.lam_logit.sigmoid() if self.fixed_lam is None else self.fixed_lam

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Tokens (...,N,C) to (...,N,C), in groups of N that attend to one another.

        Args:
            x: the tokens, with at least one dimension of groups (images, windows).
            bias: what is added to the scores, such as relative positions and (finite) masks; of a
                shape that broadcasts to (...,h,N,N).
        """
        return self.proj(self.attend(self.qkv(x), None if self.isa is None else x, bias))

    def attend(self, qkv: Tensor, x: Tensor | None, bias: Tensor | None = None) -> Tensor:
        """What is between the projections, which are of each token for itself.

        Args:
            qkv: queries, keys and values (...,N,3C).
            x: the tokens (...,N,C) that they are of; None without inverse attention.
            bias: as in :meth:`forward`.

        Returns:
            (...,N,C).
        """
        q, k, v = split_heads(qkv, 3, self.num_heads)
        if self.isa is None:
            return join_heads(self_attention(q, k, v, self.scale, bias))
        hats = (hat for hats in self.isa(x) for hat in split_heads(hats, 1, self.num_heads))
        branches = bidirectional_self_attention(q, k, v, *hats, self.isa.G, self.scale, bias)
        return self.mix(*(join_heads(self._norm(branch)) for branch in branches))

    def mix(self, plain: Tensor, inverse: Tensor) -> Tensor:
        """The two branches in their shares."""
        return self.lam * plain + (1 - self.lam) * inverse

    def _norm(self, branch: Tensor) -> Tensor:
        """(...,h,N,d): an instance norm over N, if so asked."""
        if self.branch_norm is None:
            return branch
        var, mean = torch.var_mean(branch, dim=-2, correction=0, keepdim=True)
        return (branch - mean) * (var + 1e-5).rsqrt()


class InverseWeights(nn.Module):
    """What inverse self-attention has beside self-attention: two projections and a hypernetwork.

    The reading of the paper that fits its numbers: projections of full width without biases, one G
    for all heads, scores shared with self-attention, and no output projection of its own.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; d = C / h.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        d = channels // num_heads
        self.q = Linear(channels, channels, bias=False)
        self.v = Linear(channels, channels, bias=False)
        self.G = nn.Parameter(torch.empty(d, d, d))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Small values, as Swin's are; queries of order one and a G that keeps that scale.

        A fresh inverse branch then has about the size of a fresh self-attention. (The paper does
        not say how it initialises G.)
        """
        nn.init.trunc_normal_(self.v.weight, std=0.02)
        nn.init.normal_(self.q.weight, std=self.q.in_features**-0.5)
        nn.init.normal_(self.G, std=2 / len(self.G))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (...,C) to q_hat and v_hat, (...,C) each; both are zero where a token is."""
        return gelu(self.q(x)), gelu(self.v(x))


class WindowAttention(BidirectionalSelfAttention):
    """The same within square windows, with a learned bias for each relative position.

    Args:
        channels: width C of the tokens.
        num_heads: heads h.
        window_size: side w of a window, which has N = w * w tokens.
        options: further arguments of :class:`BidirectionalSelfAttention`.
    """

    def __init__(self, channels: int, num_heads: int, window_size: int = 7, **options) -> None:
        super().__init__(channels, num_heads, **options)
        self.relative_position_bias_table = nn.Parameter(
            torch.zeros((2 * window_size - 1) ** 2, num_heads)
        )
        # in the state dict, because OpenMMLab's Swin has it there
        self.register_buffer('relative_position_index', relative_position_index(window_size))

    def attend(self, qkv: Tensor, x: Tensor | None, mask: Tensor | None = None) -> Tensor:
        """The same within windows; the mask broadcasts to (...,h,N,N)."""
        return super().attend(qkv, x, self.scores(mask).bias())

    def scores(self, mask: Tensor | None) -> Scores:
        """What the scores are made of, beside queries and keys."""
        table, index = self.relative_position_bias_table, self.relative_position_index
        return Scores(self.scale, table, index, mask)

    def within(self, windows: Windows, x: Tensor, mask: Tensor | None) -> Tensor:
        """The same for maps (B,H,W,C) that are cut into windows, to (B,H,W,C).

        What is linear is done where the tokens are, so that it is spared the padding.

        Args:
            windows: how the maps are cut.
            x: the maps.
            mask: (windows of a map,1,N,N) or None.
        """
        qkv, fill, scores = self.qkv(x), self.qkv.bias, self.scores(mask)
        if self.isa is None:
            out = window_attention(qkv, fill, windows, scores)
        elif self.branch_norm is None:
            isa = (*self.isa(x), self.isa.G)
            out = self.mix(*bidirectional_window_attention(qkv, fill, *isa, windows, scores))
        else:  # of whole windows with their padding
            zeros = x.new_zeros(x.shape[-1])
            out = self.attend(windows.cut(qkv, fill), windows.cut(x, zeros), mask)
            out = windows.join(out)
        return self.proj(out)


def relative_position_index(window_size: int) -> Tensor:
    """For each pair of a window's tokens the row of the bias table, (N,N)."""
    side = torch.arange(window_size)
    rows, columns = torch.meshgrid(side, side, indexing='ij')
    rows, columns = rows.flatten(), columns.flatten()
    down = rows[:, None] - rows[None, :] + window_size - 1
    right = columns[:, None] - columns[None, :] + window_size - 1
    return down * (2 * window_size - 1) + right


def check_branches(lam: float | str, lam_init: float, branch_norm: str | None) -> None:
    if branch_norm not in (None, 'instance'):
        raise ValueError(f"branch_norm={branch_norm!r} is not one of None, 'instance'.")
    is_number = isinstance(lam, int | float) and not isinstance(lam, bool)
    if lam != 'learned' and not (is_number and 0 <= lam <= 1):
        raise ValueError(f"lam={lam!r} must be a number from 0 to 1, or 'learned'.")
    if lam == 'learned' and not 0 < lam_init < 1:
        raise ValueError(
            f'lam_init={lam_init!r} must be above 0 and below 1: at the ends one branch would '
            'never get a gradient. Take 0.99 to start close to plain self-attention.'
        )

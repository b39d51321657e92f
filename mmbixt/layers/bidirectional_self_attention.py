import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import gelu

from mmbixt.layers.as_built import is_as_built
from mmbixt.layers.linear import apply_linear
from mmbixt.ops.dispatch import on_processor, operator_refusal, ops_path
from mmbixt.ops.heads import head_width, join_heads, split_heads
from mmbixt.ops.inverse_attention import (
    bidirectional_self_attention,
    bidirectional_self_attention_maps,
    self_attention,
)
from mmbixt.ops.linear import linear
from mmbixt.ops.precision import is_half, without_autocast
from mmbixt.ops.window_attention import (
    Scores,
    Windows,
    bidirectional_window_attention,
    window_attention,
)
from mmbixt.ops.window_attention.portable import bidirectional_attention_of_windows


class BidirectionalSelfAttention(nn.Module):
    """BiSA: self-attention and inverse self-attention in parallel, with the same scores.

    In self-attention each query attends to the values. In inverse self-attention each value attends
    to the queries: it projects them with a matrix that a hypernetwork makes from the value. For
    each head, with ``q_hat = gelu(isa.q(x))`` and ``v_hat = gelu(isa.v(x))``::

        S = q k^T / sqrt(d) + bias                                              (N,N)
        plain = softmax(S, over keys) v                                         (N,d)
        inverse[i] = sum_j L[i,j] q_hat[i] W_j,  L = softmax(S, over queries)   (N,d)
        W_j = sum_a v_hat[j,a] G[a]                                             (d,d)
        out = proj(lam * plain + (1 - lam) * inverse)

    Args:
        channels: width C of the tokens.
        num_heads: heads h; d = C / h.
        lam: the share of self-attention: a number from 0 to 1, or 'learned'. With 1 this is plain
            self-attention, without norms of branches: the inverse branch, which would never get a
            gradient, is not built.
        lam_init: initial value of a learned ``lam``, between 0 and 1. Near 1 (for example 0.99) the
            output is close to that of plain self-attention with the same weights.
        branch_norm: None, or 'instance' to normalise each channel of each branch over the tokens
            (no weights, eps 1e-5) before they are combined.
        bisa_order: 'parallel' as above; or one attention on the output of the other, with the same
            weights of queries and keys: 'misa_msa' (inverse self-attention first) or 'msa_misa'.
            These two have no ``lam``.
        projection: 'hypernetwork' as above, or 'mlp', see :class:`InverseWeights`.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        lam: float | str = 0.5,
        lam_init: float = 0.5,
        branch_norm: str | None = None,
        bisa_order: str = 'parallel',
        projection: str = 'hypernetwork',
    ) -> None:
        super().__init__()
        check_options(lam, lam_init, branch_norm, bisa_order, projection)
        self.bisa_order = bisa_order
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.branch_norm = branch_norm
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.isa = None if lam == 1 else InverseWeights(channels, num_heads, projection)
        self.fixed_lam = None if lam == 'learned' else lam
        if lam == 'learned':
            # a logit, so that lam stays between 0 and 1 in training; of shape (1,) for FSDP
            self.lam_logit = nn.Parameter(torch.full((1,), math.log(lam_init / (1 - lam_init))))

    @property
    def lam(self) -> float | Tensor:
        """The share of self-attention: a number, or a tensor (1,) if it is learned."""
        return self.lam_logit.sigmoid() if self.fixed_lam is None else self.fixed_lam

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Tokens (...,N,C) to (...,N,C), in groups of N that attend to one another.

        Args:
            x: the tokens, with at least one dimension of groups (images, windows).
            bias: is added to the scores: relative positions, masks (finite); of a shape that
                broadcasts to (...,h,N,N).
        """
        return apply_linear(self.proj, self._attend(x, bias))

    def _attend(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The module without its output projection, (...,N,C) to (...,N,C)."""
        if self.isa is None:
            q, k, v = split_heads(apply_linear(self.qkv, x), 3, self.num_heads)
            return join_heads(self_attention(q, k, v, self.scale, bias))
        if self.bisa_order == 'parallel':
            return join_heads(self.mix(*self._branches(x, bias)))
        first, second = (1, 0) if self.bisa_order == 'misa_msa' else (0, 1)
        return join_heads(self._branches(join_heads(self._branches(x, bias)[first]), bias)[second])

    def _branches(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Self-attention and inverse self-attention, (...,h,N,d) each."""
        q, k, v = split_heads(apply_linear(self.qkv, x), 3, self.num_heads)

        def attend(q_hat: Tensor, v_hat: Tensor, G: Tensor | nn.Module) -> tuple[Tensor, Tensor]:
            hats = [split_heads(hat, 1, self.num_heads)[0] for hat in (q_hat, v_hat)]
            if self.branch_norm is None:
                return self._attend_by_heads((q, k, v, *hats), G, bias)
            # Where tokens are almost equal (an area of one colour), the norm would enlarge the
            # rounding errors of attention weights in half precision up to 300 times.
            with without_autocast(q):
                single = [x.float() if is_half(x) else x for x in (q, k, v, *hats)]
                if not isinstance(G, Tensor):
                    weights = {name: x.to(single[0].dtype) for name, x in G.named_parameters()}
                    G = partial(functional_call, G, weights)
                return self._attend_by_heads(single, G, bias)

        plain, inverse = (self._norm(branch) for branch in self.isa(x, attend))
        return plain.to(q.dtype), inverse.to(q.dtype)

    def _attend_by_heads(
        self, tensors: Sequence[Tensor], G: Tensor | Callable, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Queries, keys, values, q_hat, v_hat (...,h,N,d) to the branches, in their precision."""
        q, k, v, q_hat, v_hat = tensors
        if isinstance(G, Tensor):
            return bidirectional_self_attention(*tensors, G.to(q.dtype), self.scale, bias)
        over_keys, over_queries = bidirectional_self_attention_maps(q, k, self.scale, bias)
        return over_keys @ v, G(torch.cat((over_queries @ v_hat, q_hat), dim=-1))

    def mix(self, plain: Tensor, inverse: Tensor) -> Tensor:
        """``lam * plain + (1 - lam) * inverse``, (...,h,N,d), in the precision of the branches."""
        return torch.lerp(inverse, plain, self._share(plain))

    def _share(self, branch: Tensor) -> float | Tensor:
        """``lam`` in the precision of a branch: a float32 tensor would make the result float32."""
        return self.lam.to(branch.dtype) if self.fixed_lam is None else self.fixed_lam

    def _norm(self, branch: Tensor) -> Tensor:
        """An instance norm of (...,h,N,d) over N with ``branch_norm``; otherwise the input."""
        if self.branch_norm is None:
            return branch
        var, mean = torch.var_mean(branch, dim=-2, correction=0, keepdim=True)
        return (branch - mean) * (var + 1e-5).rsqrt()


class InverseWeights(nn.Module):
    """The weights of inverse self-attention: two projections and a hypernetwork.

    The paper leaves details open. These give its numbers of parameters: projections of full width
    without biases, one G for all heads, scores shared with self-attention, and no separate output
    projection.

    The paper also compares the hypernetwork with an MLP, without a definition. Here the MLP has as
    many weights as G, and computes ``inverse[i] = mlp([sum_j L[i,j] v_hat[j], q_hat[i]])``.
    """

    def __init__(self, channels: int, num_heads: int, projection: str = 'hypernetwork') -> None:
        super().__init__()
        d = head_width(channels, num_heads)
        self.q = nn.Linear(channels, channels, bias=False)
        self.v = nn.Linear(channels, channels, bias=False)
        if projection == 'hypernetwork':
            self.G = nn.Parameter(torch.empty(d, d, d))
        else:
            hidden = max(1, round(d**2 / 3))  # times 3d weights
            layers = (nn.Linear(2 * d, hidden, bias=False), nn.Linear(hidden, d, bias=False))
            self.G = nn.Sequential(layers[0], nn.GELU(), layers[1])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Small values, as in Swin; queries of order one, and a G that keeps their scale.

        Both branches then have about the same scale at the start. (The paper does not say how it
        initialises G.)
        """
        nn.init.trunc_normal_(self.v.weight, std=0.02)
        nn.init.normal_(self.q.weight, std=self.q.in_features**-0.5)
        if isinstance(self.G, Tensor):
            nn.init.normal_(self.G, std=2 / len(self.G))
        else:
            for layer in (self.G[0], self.G[2]):
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def forward(
        self,
        x: Tensor,
        attend: Callable[[Tensor, Tensor, Tensor | nn.Module], tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        """The branches of self-attention and inverse self-attention.

        G is passed from here, because under FSDP it is complete only while its own module runs.

        Args:
            x: tokens (...,C).
            attend: computes the branches from ``q_hat`` and ``v_hat``, (...,C) each, and ``G``.
        """
        return attend(gelu(apply_linear(self.q, x)), gelu(apply_linear(self.v, x)), self.G)


class WindowAttention(BidirectionalSelfAttention):
    """BiSA within square windows, with a learned bias for each relative position.

    A window of side ``window_size`` has N = window_size ** 2 tokens.
    """

    def __init__(self, channels: int, num_heads: int, window_size: int = 7, **options) -> None:
        super().__init__(channels, num_heads, **options)
        self.relative_position_bias_table = nn.Parameter(
            torch.zeros((2 * window_size - 1) ** 2, num_heads)
        )
        # in the state dict, because OpenMMLab's Swin has it there
        self.register_buffer('relative_position_index', relative_position_index(window_size))

    def forward(
        self, x: Tensor, mask: Tensor | None = None, windows: Windows | None = None
    ) -> Tensor:
        """Tokens of windows (...,N,C) to (...,N,C), or whole feature maps (B,H,W,C) to (B,H,W,C).

        Args:
            x: the tokens.
            mask: is added to the scores, as the learned bias is; finite, and of a shape that
                broadcasts to (...,h,N,N). For feature maps (windows of one feature map,1,N,N).
            windows: how feature maps are cut into windows; None if the tokens are in windows.
        """
        scores = self._scores(mask)
        if windows is None:
            out = self._attend(x, scores.bias())
        elif self._is_fused and (on_processor(x) or ops_path() == 'reference'):
            out = self._attend_in_windows(x, windows, scores)
        # on a GPU copies take most of the time: C channels are copied here, not 3 C
        elif self.isa is None or not self._is_fused or operator_refusal() or ops_path() == 'cpu':
            out = windows.join(self._attend(windows.cut(x), scores.bias()))
        else:
            out = self._attend_around_windows(x, windows, scores)
        return apply_linear(self.proj, out)

    def attention_maps(
        self, x: Tensor, mask: Tensor | None, windows: Windows
    ) -> tuple[Tensor, Tensor]:
        """For pictures: both attention matrices of feature maps (B,H,W,C), (B,windows,h,N,N).

        The first sums to one over the keys, the second over the queries.
        """
        qkv = self.qkv(windows.cut(x))
        q, k, _ = split_heads(qkv, 3, self.num_heads)
        return bidirectional_self_attention_maps(q, k, self.scale, self._scores(mask).bias())

    def _scores(self, mask: Tensor | None) -> Scores:
        table, index = self.relative_position_bias_table, self.relative_position_index
        return Scores(self.scale, table, index, mask)

    @property
    def _is_fused(self) -> bool:
        """Whether the linear layers are unchanged, so that their output for padding is known."""
        if not is_as_built(self.qkv, nn.Linear) or self.qkv.bias is None:
            return False
        if self.isa is None:
            return True
        if not is_as_built(self.isa, InverseWeights) or self.branch_norm is not None:
            return False
        if self.bisa_order != 'parallel' or not isinstance(self.isa.G, Tensor):
            return False
        hats = (self.isa.q, self.isa.v)
        return all(is_as_built(layer, nn.Linear) and layer.bias is None for layer in hats)

    def _attend_in_windows(self, x: Tensor, windows: Windows, scores: Scores) -> Tensor:
        """The linear layers are applied before the feature maps (B,H,W,C) are cut into windows.

        The padding is zero, so its queries, keys and values are the bias of the linear layer.
        """
        qkv, fill = apply_linear(self.qkv, x), self.qkv.bias
        if self.isa is None:
            return window_attention(qkv, fill, windows, scores)

        def attend(q_hat: Tensor, v_hat: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
            return bidirectional_window_attention(qkv, fill, q_hat, v_hat, G, windows, scores)

        return self.mix(*self.isa(x, attend))

    def _attend_around_windows(self, x: Tensor, windows: Windows, scores: Scores) -> Tensor:
        """Compute in windows only what needs them: in windows, padding is also computed.

        The weights are multiplied by the shares of the branches, so that activations need not be.
        """
        isa, own = self.isa, self._share(x)
        channels = x.shape[-1]
        keys, values = self.qkv.weight.split((2 * channels, channels))
        weight = torch.cat((keys, own * values, isa.v.weight))
        keys, values = self.qkv.bias.split((2 * channels, channels))
        fill = torch.cat((keys, own * values, values.new_zeros(channels)))
        q, k, v, v_hat = split_heads(linear(windows.cut(x), weight, fill), 4, self.num_heads)
        hats, G = (gelu(v_hat), gelu(apply_linear(isa.q, x))), ((1 - own) * isa.G).to(q.dtype)
        plain, inverse = bidirectional_attention_of_windows(q, k, v, *hats, G, windows, scores)
        return plain + inverse


def relative_position_index(window_size: int) -> Tensor:
    """The row of the bias table for each pair of tokens of a window, (N,N)."""
    side = torch.arange(window_size)
    cells = torch.cartesian_prod(side, side)  # (N,2), row by row
    down, right = (cells[:, None] - cells[None, :] + window_size - 1).unbind(-1)
    return down * (2 * window_size - 1) + right


def check_options(
    lam: float | str, lam_init: float, branch_norm: str | None, bisa_order: str, projection: str
) -> None:
    """Check the options of :class:`BidirectionalSelfAttention`."""
    for name, value, valid in (
        ('branch_norm', branch_norm, (None, 'instance')),
        ('bisa_order', bisa_order, ('parallel', 'misa_msa', 'msa_misa')),
        ('projection', projection, ('hypernetwork', 'mlp')),
    ):
        if value not in valid:
            raise ValueError(f'{name}={value!r} is not one of {", ".join(map(repr, valid))}.')
    is_number = isinstance(lam, int | float) and not isinstance(lam, bool)
    if lam != 'learned' and not (is_number and 0 <= lam <= 1):
        raise ValueError(f"lam={lam!r} must be a number from 0 to 1, or 'learned'.")
    if lam == 'learned' and not 0 < lam_init < 1:
        raise ValueError(
            f'lam_init={lam_init!r} must be above 0 and below 1: at the ends one branch would '
            'never get a gradient. Use 0.99 to start close to plain self-attention.'
        )
    if bisa_order != 'parallel' and lam != 0.5:
        raise ValueError(
            f"lam={lam!r} has an effect with bisa_order='parallel' only; leave lam out."
        )

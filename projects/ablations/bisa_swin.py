"""BiSA-Swin: two attentions in turn, an MLP instead of the hypernetwork (Table 3), and the norms of
the paper's text (Table 1; the authors' code has layer norms).

Open, and chosen here: what the instance norm averages (the tokens of a window), how two attentions
in turn connect (with the same queries and keys), and the MLP.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import gelu

from mmbixt.attention import BidirectionalWindowAttention
from mmbixt.attention.inverse import InverseAttention
from mmbixt.backbones import BiSASwin
from mmbixt.backbones.arch import check_choice
from mmbixt.layers.precision import without_autocast
from mmbixt.layers.softmax_attention import attention_scores, join_heads, split_heads
from mmbixt.registry import MODELS


class InverseByMLP(InverseAttention):
    """``inverse[i] = mlp([sum_j L[i,j] v_hat[j], q_hat[i]])``, with as many weights as G."""

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__(channels, num_heads)
        d = len(self.G)
        hidden = max(1, round(d**2 / 3))  # times 3d weights
        del self.G
        layers = (nn.Linear(2 * d, hidden, bias=False), nn.Linear(hidden, d, bias=False))
        self.G = nn.Sequential(layers[0], nn.GELU(), layers[1])

    def reset_parameters(self) -> None:
        """The hypernetwork's, but the MLP keeps the scale of its inputs."""
        if isinstance(self.G, Tensor):  # not replaced yet
            return
        nn.init.trunc_normal_(self.v.weight, std=0.02)
        for layer in (self.q, self.G[0], self.G[2]):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def forward(self, x: Tensor, scores: Tensor) -> Tensor:
        """Tokens (...,N,C) and scores (...,h,N,N), in whose precision it computes, to (...,N,C)."""
        q_hat, v_hat = (gelu(layer(x)).to(scores.dtype) for layer in (self.q, self.v))
        with without_autocast(x):
            (v_hat,) = split_heads(v_hat, 1, self.num_heads)
            pooled = join_heads(scores.softmax(dim=-2) @ v_hat)
            heads = [y.unflatten(-1, (self.num_heads, -1)) for y in (pooled, q_hat)]
            both = torch.cat(heads, dim=-1)
            weights = {name: w.to(scores.dtype) for name, w in self.G.named_parameters()}
            if all(weights[name] is w for name, w in self.G.named_parameters()):
                return self.G(both).flatten(-2)  # torch.jit can trace it
            return functional_call(self.G, weights, both).flatten(-2)


class WindowAblation(BidirectionalWindowAttention):
    """BiSA in windows, with the options of :class:`BiSASwinAblation`."""

    def __init__(
        self, *sizes: int, bisa_order: str, projection: str, branch_norm: str | None, **lam: Any
    ) -> None:
        stock = dict(projection='hypernetwork' if projection == 'mlp' else projection)
        super().__init__(*sizes, **stock, **lam)
        self.bisa_order, self.branch_norm = bisa_order, branch_norm
        if projection == 'mlp':
            self.isa = InverseByMLP(*sizes[:2])

    def attend(self, tokens: Tensor, bias: Tensor | None) -> Tensor:
        """The module without its output projection, (...,N,C) to (...,N,C)."""
        if self.bisa_order == 'parallel':
            return super().attend(tokens, bias)
        first, second = (1, 0) if self.bisa_order == 'misa_msa' else (0, 1)
        return self.branches(self.branches(tokens, bias)[first], bias)[second]

    def branches(self, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Self-attention and inverse self-attention, (...,N,C) each.

        With an instance norm, both are computed at least in float32: where tokens are almost equal
        (an area of one colour), the norm enlarges rounding errors of attention weights up to 300
        times.
        """
        if self.branch_norm != 'instance':
            return super().branches(x, bias)
        qkv = self.qkv(x)
        wide = qkv.to(torch.promote_types(qkv.dtype, torch.float32))
        with without_autocast(x):
            q, k, v = split_heads(wide, 3, self.num_heads)
            scores = attention_scores(q, k, self.scale, bias)
            plain = join_heads(scores.softmax(dim=-1) @ v)
        both = plain, self.isa(x, scores)
        return tuple(normed_over_tokens(branch).to(qkv.dtype) for branch in both)


def normed_over_tokens(branch: Tensor) -> Tensor:
    """An instance norm of (...,N,C) over N."""
    var, mean = torch.var_mean(branch, dim=-2, correction=0, keepdim=True)
    return (branch - mean) * (var + 1e-5).rsqrt()


@MODELS.register_module()
class BiSASwinAblation(BiSASwin):
    """BiSA-Swin with other inverse attentions.

    Args:
        args, options: of :class:`mmbixt.backbones.BiSASwin`.
        bisa_order: 'parallel', or one attention on the output of the other: 'misa_msa' (inverse
            self-attention first) or 'msa_misa', without ``lam``.
        projection: also 'mlp'.
        branch_norm: also 'instance', of each channel over the tokens.
    """

    def __init__(
        self,
        *args: Any,
        lam: float | str = 0.5,
        lam_init: float = 0.5,
        bisa_order: str = 'parallel',
        projection: str = 'hypernetwork',
        branch_norm: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, lam=lam, lam_init=lam_init, **options)
        check_choice('bisa_order', bisa_order, ('parallel', 'misa_msa', 'msa_misa'))
        check_choice('projection', projection, ('hypernetwork', 'additive', 'mlp'))
        check_choice('branch_norm', branch_norm, (None, 'instance', 'layer'))
        if bisa_order != 'parallel' and lam != 0.5:
            raise ValueError(f"lam={lam!r} has an effect only with bisa_order='parallel'.")
        inverse = dict(bisa_order=bisa_order, projection=projection, branch_norm=branch_norm)
        inverse |= dict(lam=lam, lam_init=lam_init)
        for layer in self.layer_list():
            attention, size = layer.module.attn.w_msa, self.arch['window_size']
            if isinstance(attention, BidirectionalWindowAttention):
                sizes = layer.width, attention.num_heads, size
                layer.module.attn.w_msa = WindowAblation(*sizes, **inverse)
        self.reset_parameters()
        self.finish_init()

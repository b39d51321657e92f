"""Cross-covariance attention: over channels instead of tokens (XCiT).

For queries, keys and values q, k and v (d,N) of a head::

    q_hat = q / |q|,  k_hat = k / |k|                   each row has length one over the tokens
    out = softmax(temperature * q_hat k_hat^T) v        (d,d) times (d,N)

The cost is linear in the tokens, and no weight depends on their number. Two ablations of the paper
are options: no normalisation, where ``q_hat`` is ``q`` and ``k_hat`` is ``k`` (by these equations
only), and no learned temperature, which is then 1 (chosen here).

The implementation computes the norms in the same matrix product, of queries and keys together, and
divides the products by them. To divide the queries and keys would copy them.

In float32, with many tokens, queries, keys and values are not computed at all. For tokens ``X``
(N,C) of an image with mean ``m``, and projections with weights ``W`` and biases ``b``, attention
needs only sums over the tokens of products of queries and keys::

    q k^T = Wq G Wk^T + N (Wq m + bq)(Wk m + bk)^T,   G = (X - m)^T (X - m)

and in the same way the squares of their norms. With the attention ``A`` of all heads (block
diagonal) and the output projection ``Wo``, the output is the tokens times one matrix per image::

    X (Wo A Wv)^T + Wo A bv + bo

So there are two products with all tokens instead of four.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.modules.module import _has_any_global_hook

from mmbixt.layers.context import half_dtype, is_by_definition, is_reduced_float32
from mmbixt.layers.sizes import known_true
from mmbixt.layers.softmax_attention import head_width


def split_channels(qkv: Tensor, heads: int) -> tuple[Tensor, ...]:
    """(B,N,3C) to queries, keys and values, (B,h,d,N) each."""
    return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 4, 1).unbind(0)


def cross_covariance_maps(
    queries: Tensor, keys: Tensor, temperature: Tensor, l2_norm: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """q_hat and k_hat (B,h,d,N), and the attention (B,h,d,d) of each channel, which sums to one."""
    q_hat, k_hat = (normalize(x, dim=-1) if l2_norm else x for x in (queries, keys))
    return q_hat, k_hat, (temperature * q_hat @ k_hat.transpose(-2, -1)).softmax(dim=-1)


def cross_covariance_definition(qkv: Tensor, temperature: Tensor, l2_norm: bool = True) -> Tensor:
    """:func:`cross_covariance` by the equations above."""
    queries, keys, values = split_channels(qkv, len(temperature))
    attention = cross_covariance_maps(queries, keys, temperature, l2_norm)[2]
    return (attention @ values).permute(0, 3, 1, 2).flatten(2)


def cross_covariance(qkv: Tensor, temperature: Tensor, l2_norm: bool = True) -> Tensor:
    """The channels of a head attend to each other by their cosine over all tokens.

    Args:
        qkv: queries, keys and values (B,N,3C).
        temperature: (h,1,1), factor of the cosines of each head.
        l2_norm: whether queries and keys are normalised; without, the definition is what runs.

    Returns:
        (B,N,C).
    """
    if is_by_definition() or not l2_norm or _needs_definition(qkv):
        return cross_covariance_definition(qkv, temperature, l2_norm)
    batch, heads = qkv.shape[0], len(temperature)
    queries_keys, values = qkv.unflatten(-1, (3, heads, -1)).split((2, 1), 2)
    queries_keys = queries_keys.permute(0, 3, 2, 4, 1).flatten(2, 3).flatten(0, 1)  # (Bh,2d,N)
    wide = torch.promote_types(qkv.dtype, torch.float32)
    moments = (queries_keys @ queries_keys.transpose(1, 2)).to(wide)
    products = moments.chunk(2, 1)[0].chunk(2, 2)[1]
    squares = moments.diagonal(dim1=1, dim2=2).chunk(2, 1)
    attention = attention_of_channels(products, *squares, temperature).to(values.dtype)
    out = attention @ values.permute(0, 2, 3, 4, 1).flatten(0, 2)  # (Bh,d,N)
    return out.unflatten(0, (batch, heads)).permute(0, 3, 1, 2).flatten(2)


def _needs_definition(x: Tensor) -> bool:
    """Whether half precision is not enough for products over all tokens, or not faster.

    They overflow float16. In bfloat16, where all tokens are alike, gradients had three times the
    error of the definition; this is accepted on GPUs, where it saves time, and not on CPUs.
    """
    dtype = half_dtype(x)
    return dtype == torch.float16 or (dtype is not None and x.device.type == 'cpu')


def attention_of_channels(
    products: Tensor, query_squares: Tensor, key_squares: Tensor, temperature: Tensor
) -> Tensor:
    """Products (Bh,d,d) of queries and keys, and their squared norms (Bh,d), to attention (Bh,d,d).

    Images and heads are one dimension: inductor (of torch 2.11) treats tensors (B,h,d,d) as feature
    maps, stores them channels-last next to convolutions, and then writes past their ends.
    """
    # norms are at least 1e-12, as in torch.nn.functional.normalize
    query_norms, key_norms = (x.clamp_min(1e-24).sqrt() for x in (query_squares, key_squares))
    cosines = products / (query_norms[:, :, None] * key_norms[:, None, :])
    temperature = temperature.repeat(products.shape[0] // temperature.shape[0], 1, 1)
    return (cosines * temperature).softmax(dim=-1)


class CrossCovarianceAttention(nn.Module):
    """XCiT's attention: the channels of a head attend to each other by their cosine.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; channels attend to those of their own head.
        l2_norm: whether each channel of queries and keys is divided by its length.
        learned_temperature: whether each head has a temperature; without, it is 1.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        l2_norm: bool = True,
        learned_temperature: bool = True,
    ) -> None:
        super().__init__()
        head_width(channels, num_heads)  # raises an error if the heads cannot share the channels
        self.num_heads, self.l2_norm = num_heads, l2_norm
        temperature = nn.Parameter(torch.ones(num_heads, 1, 1)) if learned_temperature else None
        self.register_parameter('temperature', temperature)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,N,C) to (B,N,C)."""
        if self._uses_gram_matrix(tokens):
            return self._by_gram_matrix(tokens)
        temperature = self._temperature(tokens)
        return self.proj(cross_covariance(self.qkv(tokens), temperature, self.l2_norm))

    def _temperature(self, x: Tensor) -> Tensor:
        """(h,1,1)."""
        return x.new_ones(self.num_heads, 1, 1) if self.temperature is None else self.temperature

    def _uses_gram_matrix(self, x: Tensor) -> bool:
        """With fewer than 2C tokens Gram matrices cost more than they save.

        They need products without reduced precision: rounded squares could be negative.
        """
        if is_by_definition() or not self.l2_norm:
            return False
        if half_dtype(x) is not None or is_reduced_float32(x):
            return False
        if known_true(x.shape[1] < 2 * x.shape[2]) or known_true(x.shape[0] == 0):
            return False
        return is_plain_linear(self.qkv) and is_plain_linear(self.proj)

    def _by_gram_matrix(self, x: Tensor) -> Tensor:
        batch, _, channels = x.shape
        heads = self.num_heads
        query_key, values = self.qkv.weight.split((2 * channels, channels))
        query_key_bias, value_bias = self.qkv.bias.split((2 * channels, channels))
        moments = second_moments(x, query_key, query_key_bias, heads)
        attention = attention_of_channels(*moments, self._temperature(x))
        attention = attention.unflatten(0, (batch, heads))
        mixed = (attention @ values.unflatten(0, (heads, -1))).flatten(1, 2)  # A Wv, (B,C,C)
        mixed_bias = (attention @ value_bias.view(heads, -1, 1)).flatten(1)  # A bv, (B,C)
        weight = self.proj.weight @ mixed
        bias = nn.functional.linear(mixed_bias, self.proj.weight, self.proj.bias)
        return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))

    @torch.no_grad()
    def attention_maps(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For pictures: :func:`cross_covariance_maps` of tokens (B,N,C)."""
        queries, keys, _ = split_channels(self.qkv(tokens), self.num_heads)
        return cross_covariance_maps(queries, keys, self._temperature(tokens), self.l2_norm)


def second_moments(
    x: Tensor, weight: Tensor, bias: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Products of queries and keys over the tokens, and their squares.

    The covariance part (``Wq G Wk^T``) and the part of the mean are computed separately and added.
    In the squares both are at least zero, so that no digits cancel, even if the mean is large.

    Args:
        x: tokens (B,N,C).
        weight: (2C,C), rows of queries, then of keys.
        bias: (2C,).
        heads: h.

    Returns:
        The products for each head (Bh,d,d), and the squares of queries and of keys, (Bh,d) each.
    """
    batch, tokens, _ = x.shape
    mean = x.mean(1, keepdim=True)
    centred = x - mean
    spread = weight @ (centred.transpose(1, 2) @ centred)  # (B,2C,C)
    means = nn.functional.linear(mean[:, 0], weight, bias)  # (B,2C)
    squares = (spread * weight).sum(-1) + tokens * means.square()
    query_spread = spread.chunk(2, 1)[0].unflatten(1, (heads, -1))  # (B,h,d,C)
    keys = weight.chunk(2)[1].unflatten(0, (heads, -1)).transpose(1, 2)  # (h,C,d)
    query_means, key_means = means.view(batch, 2, heads, -1).transpose(0, 1).flatten(1, 2)
    products = (query_spread @ keys).flatten(0, 1)
    products = products + tokens * query_means[:, :, None] * key_means[:, None, :]
    return products, *squares.view(batch, 2, heads, -1).transpose(0, 1).flatten(1, 2)


def is_plain_linear(layer: nn.Module) -> bool:
    """Whether the weights of a linear layer may be read in place of calling it.

    True if it is exactly an ``nn.Linear`` (not a subclass, as LoRA layers and quantised,
    parametrized or FSDP modules are) with a bias, and has neither hooks nor computed weights.
    """
    return (
        type(layer) is nn.Linear
        and isinstance(layer.weight, nn.Parameter)
        and isinstance(layer.bias, nn.Parameter)
        and not any(value for name, value in vars(layer).items() if 'hooks' in name)
        and 'forward' not in vars(layer)
        and not _has_any_global_hook()
    )

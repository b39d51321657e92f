"""Softmax attention by torch's fused kernels, and the attention of BiXT's latents and XCiT's class
token."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from mmbixt.layers.definition import is_by_definition
from mmbixt.layers.mlp import Mlp


def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """(...,N,parts*h*d) to a tuple of ``parts`` tensors (...,h,N,d), such as q, k and v."""
    if parts == 1:
        return (x.unflatten(-1, (heads, -1)).transpose(-3, -2),)
    # split before transposing, so that the backward pass joins the gradients in one copy
    return tuple(part.transpose(-3, -2) for part in x.unflatten(-1, (parts, heads, -1)).unbind(-3))


def join_heads(x: Tensor) -> Tensor:
    """(...,h,N,d) to (...,N,h*d)."""
    return x.transpose(-3, -2).flatten(-2)


def head_width(channels: int, num_heads: int) -> int:
    """Channels d of a head; an error if the heads cannot share the channels equally."""
    if channels % num_heads:
        raise ValueError(f'{channels} channels cannot be split among {num_heads} heads.')
    return channels // num_heads


def attention_scores(q: Tensor, k: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """``S = scale q k^T + bias``: (...,h,N,d) and (...,h,M,d) to (...,h,N,M)."""
    if bias is None:
        return scale * q @ k.transpose(-2, -1)
    rows = [x.flatten(0, -3) for x in (q, k)]
    bias = bias.to(q.dtype).expand(*q.shape[:-1], k.shape[-2]).flatten(0, -3)
    scores = torch.baddbmm(bias, rows[0], rows[1].transpose(1, 2), alpha=scale)
    return scores.unflatten(0, q.shape[:-2])


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None = None
) -> Tensor:
    """``softmax(scale q k^T + bias, over keys) v``.

    Args:
        q: (B,h,N,d).
        k, v: (B,h,M,d).
        scale: factor of the products.
        bias: None, or what is added to the scores, without a gradient; broadcasts to (B,h,N,M).

    Returns:
        (B,h,N,d).
    """
    if is_by_definition():
        return attention_scores(q, k, scale, bias).softmax(dim=-1) @ v
    if bias is not None:
        bias = bias.to(q.dtype)
    return scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def biased_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor) -> Tensor:
    """:func:`fused_attention` with a learned bias: (...,h,N,d) to (...,h,N,d)."""
    if is_by_definition() or q.device.type == 'cpu':  # whose fused kernel has no gradient of a bias
        return attention_scores(q, k, scale, bias).softmax(dim=-1) @ v
    return fused_with_bias(q, k, v, scale, bias)


def fused_with_bias(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor) -> Tensor:
    """:func:`biased_attention` by the fused kernels of GPUs, which need four dimensions."""
    bias = bias.to(q.dtype).expand(*q.shape[:-1], k.shape[-2]).flatten(0, -4)
    four = (x.flatten(0, -4) for x in (q, k, v))
    out = scaled_dot_product_attention(*four, attn_mask=bias, scale=scale)
    return out.unflatten(0, q.shape[:-3])


class SelfAttention(nn.Module):
    """Attention of all tokens over all tokens: ``proj(softmax(q k^T / sqrt(d)) v)``.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; d = C / h.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, tokens: Tensor, bias: Tensor | None = None) -> Tensor:
        """(...,N,C) to (...,N,C).

        A bias, which may be learned, is added to the scores; it broadcasts to (...,h,N,N).
        """
        return self.proj(self.attend(tokens, bias))

    def attend(self, tokens: Tensor, bias: Tensor | None) -> Tensor:
        """The module without its output projection."""
        q, k, v = split_heads(self.qkv(tokens), 3, self.num_heads)
        if bias is None:
            return join_heads(fused_attention(q, k, v, self.scale))
        return join_heads(biased_attention(q, k, v, self.scale, bias))


class ClassAttention(SelfAttention):
    """Attention of only the class token, over itself and all tokens (CaiT, XCiT)."""

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,1+N,C), the class token first, to the class token's update (B,1,C)."""
        q, k, v = split_heads(self.qkv(tokens), 3, self.num_heads)
        return self.proj(join_heads(fused_attention(q[:, :, :1], k, v, self.scale)))


class ClassAttentionLayer(nn.Module):
    """Class attention and an MLP of the class token, as in XCiT's code.

    For tokens x = [c, p], where c is the class token::

        x' = x + gamma1 * [attn(norm1(x)), norm1(p)]
        x' = norm2(x')                   with tokens_norm; else only c' = norm2(c')
        x'' = [c' + gamma2 * mlp(c'), 2 p']
    """

    def __init__(
        self, channels: int, num_heads: int, hidden: int, layer_scale: float, tokens_norm: bool
    ) -> None:
        super().__init__()
        self.tokens_norm = tokens_norm
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = ClassAttention(channels, num_heads)
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Mlp(channels, hidden)
        self.gamma1 = nn.Parameter(torch.full((channels,), float(layer_scale)))
        self.gamma2 = nn.Parameter(torch.full((channels,), float(layer_scale)))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,1+N,C) to (B,1+N,C), the class token first."""
        normed = self.norm1(tokens)
        update = torch.cat((self.attn(normed), normed[:, 1:]), dim=1)
        tokens = tokens + self.gamma1 * update
        if self.tokens_norm:
            tokens = self.norm2(tokens)
            class_token, others = tokens[:, :1], tokens[:, 1:]
        else:
            class_token, others = self.norm2(tokens[:, :1]), tokens[:, 1:]
        class_token = class_token + self.gamma2 * self.mlp(class_token)
        return torch.cat((class_token, 2 * others), dim=1)

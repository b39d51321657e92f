"""Attention within square windows, and the same with inverse attention (BiSA)."""

from torch import Tensor

from mmbixt.ops.cpu.window_attention import bidirectional_window_attention_cpu, window_attention_cpu
from mmbixt.ops.dispatch import choose, implementations
from mmbixt.ops.heads import join_heads, split_heads
from mmbixt.ops.inverse_attention import bidirectional_self_attention, self_attention
from mmbixt.ops.inverse_attention.reference import Inverse
from mmbixt.ops.window_attention.windows import Scores, Windows

__all__ = ['Scores', 'Windows', 'bidirectional_window_attention', 'window_attention']


# The definition: cut feature maps into windows, compute attention in each, join the windows.
def window_attention_reference(
    qkv: Tensor, fill: Tensor, windows: Windows, scores: Scores
) -> Tensor:
    q, k, v = split_heads(windows.cut(qkv, fill), 3, scores.heads)
    return windows.join(join_heads(self_attention(q, k, v, scores.scale, scores.bias())))


def bidirectional_window_attention_reference(
    qkv: Tensor, fill: Tensor, inverse: Inverse, windows: Windows, scores: Scores
) -> tuple[Tensor, Tensor]:
    parts = split_heads(windows.cut(qkv, fill), 3, scores.heads)
    zeros = inverse.q_hat.new_zeros(inverse.q_hat.shape[-1])
    for x in (inverse.q_hat, inverse.v_hat):
        parts += split_heads(windows.cut(x, zeros), 1, scores.heads)
    branches = bidirectional_self_attention(*parts, inverse.G, scores.scale, scores.bias())
    plain, projected = (windows.join(join_heads(branch)) for branch in branches)
    return plain, projected


# No portable code here: the attention within the windows is an op and chooses its own path.
_ALONE = implementations(window_attention_reference, cpu=window_attention_cpu)
_BOTH = implementations(
    bidirectional_window_attention_reference, cpu=bidirectional_window_attention_cpu
)


def window_attention(qkv: Tensor, fill: Tensor, windows: Windows, scores: Scores) -> Tensor:
    """The tokens of each window attend to one another.

    Args:
        qkv: queries, keys and values (B,H,W,3C) of feature maps.
        fill: queries, keys and values (3C,) of the padding that completes the windows.
        windows: how the feature maps are cut.
        scores: how scores are computed from queries and keys.

    Returns:
        (B,H,W,C).
    """
    return choose('window_attention', _ALONE, qkv)(qkv, fill, windows, scores)


def bidirectional_window_attention(
    qkv: Tensor,
    fill: Tensor,
    q_hat: Tensor,
    v_hat: Tensor,
    G: Tensor,
    windows: Windows,
    scores: Scores,
) -> tuple[Tensor, Tensor]:
    """Self-attention and inverse self-attention within windows, on the same scores.

    Args:
        qkv, fill, windows, scores: as in :func:`window_attention`.
        q_hat, v_hat: (B,H,W,C), with zeros as padding; and G (d,d,d): see
            :func:`mmbixt.ops.bidirectional_self_attention`.

    Returns:
        The two branches, (B,H,W,C) each.
    """
    attend = choose('bidirectional_window_attention', _BOTH, qkv)
    return attend(qkv, fill, Inverse(q_hat, v_hat, G), windows, scores)

"""Both attentions of windows that have been cut, for feature maps that have not."""

from torch import Tensor

from mmbixt.ops.dispatch import choose, implementations
from mmbixt.ops.inverse_attention.bilinear import bilinear
from mmbixt.ops.inverse_attention.portable import shared_scores
from mmbixt.ops.window_attention.windows import Scores, Windows


def _attend(
    q: Tensor, k: Tensor, v: Tensor, v_hat: Tensor, q_hat: Tensor, G: Tensor, *how
) -> tuple[Tensor, Tensor]:
    windows, scores = how
    products = shared_scores(q, k, scores.scale, scores.bias())
    plain, pooled = products.softmax(dim=-1) @ v, products.softmax(dim=-2) @ v_hat
    plain, pooled = windows.join_heads(plain), windows.join_heads(pooled)
    inverse = bilinear(pooled, q_hat.unflatten(-1, (scores.heads, -1)), G)
    return plain.flatten(-2), inverse.flatten(-2)


_PATHS = implementations(_attend)


def bidirectional_attention_of_windows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    v_hat: Tensor,
    q_hat: Tensor,
    G: Tensor,
    windows: Windows,
    scores: Scores,
) -> tuple[Tensor, Tensor]:
    """:func:`mmbixt.ops.bidirectional_window_attention`, of tokens that are in windows already.

    The projection of a token needs only an average from its window, so it is computed on the
    feature map, where there is no padding.

    Args:
        q, k, v, v_hat: (B,windows,h,N,d).
        q_hat: (B,H,W,C).
        G, windows, scores: as there.

    Returns:
        The two branches, (B,H,W,C) each.
    """
    attend = choose('bidirectional_window_attention', _PATHS, q_hat)
    return attend(q, k, v, v_hat, q_hat, G, windows, scores)

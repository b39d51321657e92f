"""The definition: cut feature maps into windows, let each attend, put them together again."""

from torch import Tensor

from mmbixt.ops.heads import join_heads, split_heads
from mmbixt.ops.inverse_attention import bidirectional_self_attention, self_attention
from mmbixt.ops.inverse_attention.reference import Inverse
from mmbixt.ops.window_attention.windows import Scores, Windows


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

from timm.layers import DropPath
from torch import Tensor, nn

from mmbixt.ops.feed_forward import feed_forward


def add_feed_forward(
    tokens: Tensor,
    norm: nn.LayerNorm,
    fc1: nn.Linear,
    fc2: nn.Linear,
    drop_path: DropPath,
    scale: Tensor | None = None,
) -> Tensor:
    """The second half of a transformer block: tokens plus what an MLP makes of them.

    Args:
        tokens: (...,C).
        norm: before the MLP.
        fc1: first layer of the MLP; a GELU follows.
        fc2: second layer.
        drop_path: stochastic depth.
        scale: layer scale (C,) or None.

    Returns:
        (...,C).
    """
    drops = drop_path.training and drop_path.drop_prob > 0
    weights = (fc1.weight, fc1.bias, fc2.weight, fc2.bias)
    norm_weights = (norm.weight, norm.bias, norm.eps)
    out = feed_forward(tokens, *norm_weights, *weights, scale, residual=not drops)
    return tokens + drop_path(out) if drops else out

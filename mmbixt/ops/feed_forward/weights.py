from typing import NamedTuple

from torch import Tensor


class FeedForwardWeights(NamedTuple):
    """The weights of an MLP, of the layer norm before it and of the layer scale behind it.

    Attributes:
        norm_weight: (C,).
        norm_bias: (C,).
        eps: of the layer norm.
        fc1_weight: (hidden,C).
        fc1_bias: (hidden,).
        fc2_weight: (C,hidden).
        fc2_bias: (C,).
        scale: (C,) or None.
    """

    norm_weight: Tensor
    norm_bias: Tensor
    eps: float
    fc1_weight: Tensor
    fc1_bias: Tensor
    fc2_weight: Tensor
    fc2_bias: Tensor
    scale: Tensor | None = None

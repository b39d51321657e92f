from torch import Tensor, nn

from mmbixt.ops.layer_norm import layer_norm


class LayerNorm(nn.LayerNorm):
    """torch's layer norm of the last dimension, computed by :func:`mmbixt.ops.layer_norm`."""

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,C)."""
        return layer_norm(x, self.weight, self.bias, self.eps)

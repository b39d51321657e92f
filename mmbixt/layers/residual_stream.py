"""Residual connections whose addition is delayed and fused with the next norm in one kernel."""

from torch import Tensor, nn

from mmbixt.layers.feed_forward import Mlp
from mmbixt.ops.add_norm import add_norm, add_reference, bias_gelu
from mmbixt.ops.linear import linear


class ResidualStream:
    """Tokens (B,N,C) between two blocks, and an update of them that is not added yet.

    Weights are read directly, so all modules must be as they were built.

    Attributes:
        x: the tokens without the update, which :meth:`normed` adds.
    """

    def __init__(self, x: Tensor) -> None:
        self.x = x
        self.update: tuple[Tensor | None, ...] | None = None  # and bias, scale, kept; of `add_norm`

    def value(self) -> Tensor:
        """The tokens with the update."""
        return self.x if self.update is None else add_reference(self.x, *self.update)

    def normed(self, norm: nn.LayerNorm) -> Tensor:
        """``norm(value)``; afterwards ``x`` is the value."""
        if self.update is None or self.x.shape != self.update[0].shape:  # latents before any image
            self.x, self.update = self.value(), None
            return norm(self.x)
        self.x, out = add_norm(self.x, *self.update, norm.weight, norm.bias, norm.eps)
        self.update = None
        return out

    def add(
        self, update: Tensor, scale: nn.Module, drop_path: nn.Module, layer: nn.Linear | None = None
    ) -> None:
        """Add ``drop_path(scale(update))``, or ``drop_path(scale(layer(update)))``."""
        self.x, bias = self.value(), None
        if layer is not None:
            update, bias = linear(update, layer.weight), layer.bias
        kept = None
        if drop_path.training and drop_path.drop_prob > 0:
            images = update.new_ones(update.shape[0], *[1] * (update.dim() - 1))
            kept = drop_path(images).flatten()
        self.update = (update, bias, getattr(scale, 'gamma', None), kept)

    def add_mlp(self, norm: nn.LayerNorm, mlp: Mlp, scale: nn.Module, drop_path: nn.Module) -> None:
        """Add ``drop_path(scale(mlp(norm(value))))``."""
        hidden = bias_gelu(linear(self.normed(norm), mlp.fc1.weight), mlp.fc1.bias)
        self.add(hidden, scale, drop_path, mlp.fc2)

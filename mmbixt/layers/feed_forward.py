"""MLPs of transformer blocks with the names of weights of three papers, and their residuals."""

from torch import Tensor, nn

from mmbixt.layers.as_built import is_as_built
from mmbixt.layers.norm import LayerNorm
from mmbixt.ops.feed_forward import FeedForwardWeights, feed_forward
from mmbixt.ops.residual import add_scaled

try:
    from timm.layers import DropPath, LayerScale
except ImportError:  # layers need torch alone, backbones timm; no module is then of these classes
    DropPath = LayerScale = None


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,C)."""
        return self.fc2(self.act(self.fc1(x)))


class SequentialMlp(nn.Sequential):
    """The same with BiFormer's names of weights."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__(nn.Linear(channels, hidden), nn.GELU())
        self.add_module('3', nn.Linear(hidden, channels))


class FeedForward(nn.Module):
    """The same with the names of weights of OpenMMLab's Swin Transformer."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        widen = nn.Sequential(nn.Linear(channels, hidden), nn.GELU())
        self.layers = nn.Sequential(widen, nn.Linear(hidden, channels))

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,C)."""
        return self.layers(x)


def add_update(
    tokens: Tensor, update: Tensor, drop_path: nn.Module, scale: Tensor | None = None
) -> Tensor:
    """``tokens + drop_path(scale * update)``, in one pass where stochastic depth is timm's.

    Tokens and their update are (B,...,C), a layer scale is (C,).
    """
    if not is_as_built(drop_path, DropPath):
        return tokens + drop_path(update if scale is None else scale * update)
    factor = scale
    if drop_path.training and drop_path.drop_prob > 0:  # a factor for each image
        kept = drop_path(update.new_ones(update.shape[0], *[1] * (update.dim() - 1)))
        factor = kept if scale is None else kept * scale
    return tokens + update if factor is None else add_scaled(tokens, update, factor)


def add_feed_forward(
    tokens: Tensor,
    norm: nn.Module,
    mlp: nn.Module,
    drop_path: nn.Module,
    scale: nn.Module | Tensor | None = None,
) -> Tensor:
    """The second half of a transformer block: ``tokens + drop_path(scale * mlp(norm(tokens)))``.

    (...,C) to (...,C). The MLP is one of the above, or any module that has replaced it; the layer
    scale is a module or a tensor (C,); None or an identity means no scale.
    """
    weights = _weights_as_built(norm, mlp, scale)
    if weights is None or not is_as_built(drop_path, DropPath):
        out = mlp(norm(tokens))
        if isinstance(scale, nn.Module):
            out, scale = scale(out), None
        return add_update(tokens, out, drop_path, scale)
    drops = drop_path.training and drop_path.drop_prob > 0
    out = feed_forward(tokens, weights, residual=not drops)
    return add_update(tokens, out, drop_path) if drops else out


def _weights_as_built(
    norm: nn.Module, mlp: nn.Module, scale: nn.Module | Tensor | None
) -> FeedForwardWeights | None:
    """The weights, for one op to compute norm, MLP and scale; None if modules must be called."""
    called = _called_modules(mlp)
    if [type(module) for module in called] != [nn.Linear, nn.GELU, nn.Linear]:
        return None
    fc1, act, fc2 = called
    plain = ((fc1, nn.Linear), (fc2, nn.Linear), (act, nn.GELU), (norm, LayerNorm))
    if not all(is_as_built(module, cls) for module, cls in plain):
        return None
    if fc1.bias is None or fc2.bias is None or act.approximate != 'none':
        return None
    if isinstance(scale, nn.Module):
        if is_as_built(scale, LayerScale):
            scale = scale.gamma
        elif is_as_built(scale, nn.Identity):
            scale = None
        else:
            return None
    norm_weights = (norm.weight, norm.bias, norm.eps)
    return FeedForwardWeights(*norm_weights, fc1.weight, fc1.bias, fc2.weight, fc2.bias, scale)


def _called_modules(mlp: nn.Module) -> list[nn.Module]:
    """The modules that an MLP calls, in order; an empty list if it is not as it was built."""
    if is_as_built(mlp, Mlp):
        return [mlp.fc1, mlp.act, mlp.fc2]
    if is_as_built(mlp, FeedForward):
        return _called_modules(mlp.layers)
    if is_as_built(mlp, SequentialMlp) or is_as_built(mlp, nn.Sequential):
        # a Sequential within the Sequential is replaced by its modules
        return [m for part in mlp for m in (_called_modules(part) or [part])]
    return []

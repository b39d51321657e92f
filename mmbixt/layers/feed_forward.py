"""MLPs of transformer blocks, in the layouts of three papers, and the half block around them."""

from collections import OrderedDict

from timm.layers import DropPath, LayerScale
from torch import Tensor, nn

from mmbixt.layers.as_built import is_as_built
from mmbixt.layers.norm import LayerNorm
from mmbixt.ops.feed_forward import FeedForwardWeights, feed_forward

LinearPair = tuple[nn.Linear, nn.Linear]


class Mlp(nn.Module):
    """Two linear layers with a GELU between them.

    Args:
        channels: width C of the tokens.
        hidden: width between the two layers.
    """

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,C)."""
        return self.fc2(self.act(self.fc1(x)))

    def layers_as_built(self) -> LinearPair | None:
        """The linear layers, if this and all that ``forward`` calls is as it was built."""
        return _pair(self.fc1, self.act, self.fc2) if is_as_built(self, Mlp) else None


class SequentialMlp(nn.Sequential):
    """The same with BiFormer's names of weights."""

    def __init__(self, channels: int, hidden: int) -> None:
        layers = {
            '0': nn.Linear(channels, hidden),
            '1': nn.GELU(),
            '3': nn.Linear(hidden, channels),
        }
        super().__init__(OrderedDict(layers))

    def layers_as_built(self) -> LinearPair | None:
        """As in :class:`Mlp`."""
        return _pair(*self) if is_as_built(self, SequentialMlp) else None


class FeedForward(nn.Module):
    """The same with the names of weights of OpenMMLab's Swin Transformer."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        widen = nn.Sequential(nn.Linear(channels, hidden), nn.GELU())
        self.layers = nn.Sequential(widen, nn.Linear(hidden, channels))

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,C)."""
        return self.layers(x)

    def layers_as_built(self) -> LinearPair | None:
        """As in :class:`Mlp`."""
        if not (is_as_built(self, FeedForward) and is_as_built(self.layers, nn.Sequential)):
            return None
        widen, *others = self.layers if len(self.layers) else [self.layers]
        return _pair(*widen, *others) if is_as_built(widen, nn.Sequential) else None


def _pair(*modules: nn.Module) -> LinearPair | None:
    """The first and the last of three modules, if they are a plain MLP."""
    if len(modules) != 3:
        return None
    first, act, last = modules
    plain = is_as_built(act, nn.GELU) and all(
        is_as_built(layer, nn.Linear) and layer.bias is not None for layer in (first, last)
    )
    return (first, last) if plain else None


def add_feed_forward(
    tokens: Tensor,
    norm: nn.Module,
    mlp: nn.Module,
    drop_path: nn.Module,
    scale: nn.Module | Tensor | None = None,
) -> Tensor:
    """The second half of a transformer block: ``tokens + drop_path(scale * mlp(norm(tokens)))``.

    Args:
        tokens: (...,C).
        norm: before the MLP.
        mlp: one of the above, or what a user has put in its place.
        drop_path: stochastic depth.
        scale: layer scale, a module or a tensor (C,); None or an identity for none.

    Returns:
        (...,C).
    """
    weights = _weights_as_built(norm, mlp, scale)
    if weights is None or not is_as_built(drop_path, DropPath):
        out = mlp(norm(tokens))
        if scale is not None:
            out = scale * out if isinstance(scale, Tensor) else scale(out)
        return tokens + drop_path(out)
    drops = drop_path.training and drop_path.drop_prob > 0
    out = feed_forward(tokens, weights, residual=not drops)
    return tokens + drop_path(out) if drops else out


def _weights_as_built(
    norm: nn.Module, mlp: nn.Module, scale: nn.Module | Tensor | None
) -> FeedForwardWeights | None:
    """What one op needs to compute all of it; None if the modules have to be called."""
    # not `hasattr`: a wrapper may look up what it lacks in what it wraps
    pair = mlp.layers_as_built() if isinstance(mlp, Mlp | SequentialMlp | FeedForward) else None
    if pair is None or not is_as_built(norm, LayerNorm):
        return None
    if isinstance(scale, nn.Module):
        if is_as_built(scale, LayerScale):
            scale = scale.gamma
        elif is_as_built(scale, nn.Identity):
            scale = None
        else:
            return None
    fc1, fc2 = pair
    norm_weights = (norm.weight, norm.bias, norm.eps)
    return FeedForwardWeights(*norm_weights, fc1.weight, fc1.bias, fc2.weight, fc2.bias, scale)

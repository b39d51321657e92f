"""Views of tokens (B,N,C) as feature maps (B,C,H,W) in channels-last memory format, and back."""

import torch
from torch import Tensor

from mmbixt.layers.tracing import is_exporting, is_transformed


def channels_last(image: Tensor) -> Tensor:
    """An image (B,C,H,W) in the memory format of tokens.

    Convolutions keep the memory format of their input. From an image in the default format, the
    tokens would be transposed in memory, and each layer would copy them.
    """
    # vmap does not support memory formats; an exported program would only be valid for sizes for
    # which both formats are the same
    if is_transformed() or is_exporting():
        return image
    return image.contiguous(memory_format=torch.channels_last)


def tokens_to_map(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """(B,N,C) to (B,C,H,W) in channels-last memory format: a view, nothing is copied."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)


def map_to_tokens(feature_map: Tensor) -> Tensor:
    """(B,C,H,W) to (B,N,C): a view where the feature map is channels-last."""
    return feature_map.permute(0, 2, 3, 1).flatten(1, 2)

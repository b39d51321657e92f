"""Tokens and maps are the same memory: (B,N,C) is a channels-last (B,C,H,W)."""

import torch
from torch import Tensor


def channels_last(image: Tensor) -> Tensor:
    """An image (B,C,H,W) in the memory format of tokens.

    Convolutions keep the format, and so does every sum that starts with their output: tokens of an
    image in the usual format would be transposed in memory, through all layers, and copied by each
    of them.
    """
    return image.contiguous(memory_format=torch.channels_last)


def tokens_to_map(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """(B,N,C) to (B,C,H,W) in channels-last memory format: a view, nothing is copied."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)


def map_to_tokens(feature_map: Tensor) -> Tensor:
    """(B,C,H,W) to (B,N,C): a view where the map is channels-last."""
    return feature_map.permute(0, 2, 3, 1).flatten(1, 2)

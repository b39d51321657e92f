"""Tokens and maps are the same memory: (B,N,C) is a channels-last (B,C,H,W)."""

from torch import Tensor


def tokens_to_map(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """(B,N,C) to (B,C,H,W) in channels-last memory format: a view, nothing is copied."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)


def map_to_tokens(feature_map: Tensor) -> Tensor:
    """(B,C,H,W) to (B,N,C): a view where the map is channels-last."""
    return feature_map.permute(0, 2, 3, 1).flatten(1, 2)

"""Tokens and feature maps are the same memory: (B,N,C) is a channels-last (B,C,H,W)."""

import torch
from torch import Tensor

from mmbixt.ops.dispatch import is_exporting, is_transformed


def channels_last(image: Tensor) -> Tensor:
    """An image (B,C,H,W) in the memory format of tokens.

    Convolutions keep the format, and so does every sum that starts with their output: tokens of an
    image in the usual format would be transposed in memory, through all layers, and copied by each
    of them.
    """
    # vmap knows no formats; an exported program would be bound to sizes for which both are one
    if is_transformed() or is_exporting():
        return image
    return image.contiguous(memory_format=torch.channels_last)


def tokens_to_map(tokens: Tensor, grid: tuple[int, int]) -> Tensor:
    """(B,N,C) to (B,C,H,W) in channels-last memory format: a view, nothing is copied."""
    return tokens.unflatten(1, grid).permute(0, 3, 1, 2)


def map_to_tokens(feature_map: Tensor) -> Tensor:
    """(B,C,H,W) to (B,N,C): a view where the feature map is channels-last."""
    return feature_map.permute(0, 2, 3, 1).flatten(1, 2)


def as_image(feature_map: Tensor) -> Tensor:
    """(B,H,W,C) to (B,C,H,W) in channels-last memory format: a view if the memory is plain.

    Inductor (of torch 2.11) loses the stride of a side of one, such as a batch of one, where a view
    of a copy goes into a convolution. It then takes the feature map for one of another format, in
    which depthwise convolutions take twice the time. So the strides are given explicitly.
    """
    if torch.compiler.is_dynamo_compiling():
        return StridedImage.apply(feature_map)
    return feature_map.permute(0, 3, 1, 2)


class StridedImage(torch.autograd.Function):
    """:func:`as_image` with explicit strides."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        strides = (height * width * channels, 1, width * channels, channels)
        return x.contiguous().as_strided((batch, channels, height, width), strides)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad.permute(0, 2, 3, 1)

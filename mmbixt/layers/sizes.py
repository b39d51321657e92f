"""Feature maps and images that are padded to whole patches, windows or regions."""

from torch import Tensor
from torch.nn.functional import pad


def ceil_div(length: int, size: int) -> int:
    """``length / size`` rounded up."""
    return (length + size - 1) // size


def extend(x: Tensor, height: int, width: int) -> Tensor:
    """(B,H,W,C) to (B,height,width,C) with zeros at the right and the bottom."""
    bottom, right = height - x.shape[1], width - x.shape[2]
    return pad(x, (0, 0, 0, right, 0, bottom)) if bottom + right else x  # pad always copies


def extend_to_multiple(x: Tensor, size: int) -> Tensor:
    """(B,H,W,C) with zeros at the right and the bottom, so that ``size`` divides H and W."""
    return extend(x, *(ceil_div(side, size) * size for side in x.shape[1:3]))


def extend_image(image: Tensor, size: int) -> Tensor:
    """:func:`extend_to_multiple` of (B,C,H,W), without a choice by sizes, which may be symbols."""
    height, width = image.shape[2:]
    # a quotient: inductor (of torch 2.11) fails for remainders of symbolic sizes
    bottom, right = (ceil_div(side, size) * size - side for side in (height, width))
    return pad(image, (0, right, 0, bottom))

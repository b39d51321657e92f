"""Padding of the sides of feature maps."""


def padding_to_multiple(length: int, size: int) -> int:
    """How many cells make a side a multiple of a size: ``-length % size``.

    Written with a quotient, because inductor (of torch 2.11) fails at remainders of symbolic sizes,
    which sides are as soon as it has seen images of two sizes.
    """
    return (length + size - 1) // size * size - length

"""Padding of the sides of feature maps."""


def padding_to_multiple(length: int, size: int) -> int:
    """How many cells to add to a side to make it a multiple of a size: ``-length % size``.

    Computed with a quotient, because inductor (of torch 2.11) fails for remainders of symbolic
    sizes, which it introduces after images of two sizes.
    """
    return (length + size - 1) // size * size - length

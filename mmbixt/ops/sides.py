"""Lengths of the sides of maps."""


def lacking(length: int, size: int) -> int:
    """What a side lacks to be a multiple of a size: ``-length % size``.

    Said with a quotient, because inductor (of torch 2.11) fails at remainders of symbols, which
    sides are to it as soon as it has seen images of two sizes.
    """
    return (length + size - 1) // size * size - length

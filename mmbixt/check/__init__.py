"""Checks of configs and data."""


class BadSampleError(ValueError):
    """An image or its labels cannot be used."""

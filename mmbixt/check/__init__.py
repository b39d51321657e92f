"""Checks of configs and data."""

from mmbixt.errors import UserError


class BadSampleError(UserError):
    """An image or its labels cannot be used."""

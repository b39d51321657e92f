"""Errors that users can solve."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Its message says what to do; tools show it without a traceback."""


def near_matches(name: str, names: Iterable[str]) -> str:
    """A sentence of similar names for an error about an unknown name; empty if there are none."""
    near = get_close_matches(name, list(names), n=5, cutoff=0.5)
    return f' Similar names: {", ".join(near)}.' if near else ''

"""Checks of configs and data."""

"""Checks that the data sets of a config exist, and that their files are valid."""

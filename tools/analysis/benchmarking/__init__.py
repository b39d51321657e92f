"""What ``benchmark.py`` is made of: a process for each, turns, plots."""

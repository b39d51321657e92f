"""What ``benchmark.py`` is made of: networks by name, a process for each, turns, plots."""

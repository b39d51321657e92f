"""Parts of ``benchmark.py``: networks by name, worker processes, alternation, plots."""

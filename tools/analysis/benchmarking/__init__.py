"""Parts of ``benchmark.py``: worker processes, alternation, plots."""

"""What pays on processors: operators that work through tokens in pieces that stay in the cache.

A reader of the other paths need not come here. :mod:`mmbixt.ops.dispatch` says when they are used.
"""

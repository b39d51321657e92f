"""Operators for processors, which compute in pieces of tokens that stay in the cache.

:mod:`mmbixt.ops.dispatch` says when they are used.
"""

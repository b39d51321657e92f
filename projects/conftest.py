"""The tests of projects use these fixtures of tests/."""

from conftest import fixed_seed
from test_tools.conftest import within

__all__ = ['fixed_seed', 'within']

"""The tests of projects use these fixtures of tests/."""

from conftest import fixed_seed
from test_tools.conftest import in_project, project, within

__all__ = ['fixed_seed', 'in_project', 'project', 'within']

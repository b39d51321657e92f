"""These tests need a browser, so they run only on request: `make test-browser`."""

from pathlib import Path

import pytest
from browser.chromium import NoBrowserError, Page


def pytest_ignore_collect(config):
    """Ignore this folder, unless the command line names it."""
    here = Path(__file__).parent
    named = [Path(config.invocation_params.dir, argument).resolve() for argument in config.args]
    return None if any(here in (path, *path.parents) for path in named) else True


@pytest.fixture(scope='session')
def browser(tmp_path_factory):
    """One browser for all tests; without one pytest exits."""
    try:
        page = Page(tmp_path_factory.mktemp('profile'))
    except NoBrowserError as error:
        pytest.exit(str(error), returncode=1)
    yield page
    page.close()

"""These tests need a browser, so they run only where they are asked for: `make test-browser`."""

from pathlib import Path

import pytest
from browser.chromium import NoBrowserError, Page


def pytest_ignore_collect(config):
    """All of this folder, unless it was named."""
    here = Path(__file__).parent
    named = [Path(config.invocation_params.dir, argument).resolve() for argument in config.args]
    return None if any(here in (path, *path.parents) for path in named) else True


@pytest.fixture(scope='session')
def browser(tmp_path_factory):
    """One for all tests; nothing else is done where there is none."""
    try:
        page = Page(tmp_path_factory.mktemp('profile'))
    except NoBrowserError as error:
        pytest.exit(str(error), returncode=1)
    yield page
    page.close()

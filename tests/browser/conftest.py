"""These tests need a browser, so they run only on request: `make test-browser`."""

from pathlib import Path


def pytest_ignore_collect(config):
    """Ignore this folder, unless the command line names it."""
    here = Path(__file__).parent
    named = [Path(config.invocation_params.dir, argument).resolve() for argument in config.args]
    return None if any(here in (path, *path.parents) for path in named) else True

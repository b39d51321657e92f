"""Progress of loops and phases, and fewer messages of mmengine."""

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

SECONDS = 30  # between two lines


class _Lines(tqdm):
    """A line at the beginning, now and then, and at the end."""

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        # tqdm would write over the line before
        print(self, file=self.fp, flush=True)

    def close(self) -> None:
        if not self.disable:
            self.disable = True
            if self.n > self.last_print_n:
                self.display()
            self._decr_instances(self)


def progress(iterable: Iterable | None = None, total: int | None = None) -> Any:
    """An iterable that shows how much of it is done; or, without one, a bar with ``update``.

    Args:
        iterable: the items; None if steps are reported with ``update``.
        total: number of steps, if ``iterable`` does not know it.
    """
    if sys.stderr.isatty():
        return tqdm(iterable, total=total, leave=False)
    text = '{desc}{n_fmt} of {total_fmt} after {elapsed} (remaining: {remaining})'
    options = dict(bar_format=text, mininterval=SECONDS, maxinterval=SECONDS, miniters=1)
    return _Lines(iterable, total=total, **options)


def phase(text: str) -> None:
    """Print a line at the beginning of a phase, after all results so far."""
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)


@contextmanager
def errors_only(logger: logging.Logger) -> Iterator[None]:
    """Log errors, but neither warnings nor information."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

"""Files that are there whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside a file, to be written; it takes the file's place when all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f'.{path.stem}.part{path.suffix}')
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)

"""The checkpoints that a run has written to its work dir."""

from collections.abc import Iterator
from pathlib import Path

from mmbixt.checkpoints.layout import inspect_file


def written_checkpoints(work_dir: Path) -> Iterator[tuple[Path, str | None]]:
    """Each with what is wrong with it (None if it is complete), the one to resume from first."""
    note = work_dir / 'last_checkpoint'  # written by mmengine, with an absolute path
    text = note.read_text().strip() if note.is_file() else ''
    saved = [*work_dir.glob('iter_*.pth'), *work_dir.glob('epoch_*.pth')]
    saved.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    # the folder may be a copy, whose note names a file of the original
    named = [path for path in (work_dir / Path(text).name, Path(text)) if text and path.is_file()]
    inside = [path for path in named if path.parent == work_dir]
    for path in dict.fromkeys([*inside, *saved, *named]):
        try:
            with path.open('rb') as file:
                inspect_file(file)
            yield path, None
        except Exception as error:  # a damaged file can raise any error
            yield path, f'{type(error).__name__}: {error}'

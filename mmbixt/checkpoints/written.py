"""The checkpoints that a run has written to its work dir, or to the ``out_dir`` of its config."""

from collections.abc import Iterator, Mapping
from os.path import abspath
from pathlib import Path
from typing import Any

from mmbixt.checkpoints.loader import read_file
from mmbixt.config import within


def written_checkpoints(
    work_dir: Path, cfg: Mapping[str, Any]
) -> Iterator[tuple[Path, str | None]]:
    """Each checkpoint, the one to resume from first, with the error of reading it, or None."""
    folders = [Path(abspath(work_dir))]
    if out_dir := within(cfg, 'default_hooks', 'checkpoint').get('out_dir'):
        folders.append(Path(abspath(out_dir), folders[0].name))  # as CheckpointHook does
    note = work_dir / 'last_checkpoint'  # written by mmengine
    text = note.read_text().strip() if note.is_file() else ''
    saved = [file for folder in folders for file in folder.glob('*_*.pth')]
    saved = [file for file in saved if file.name.startswith(('iter_', 'epoch_'))]
    saved.sort(key=lambda path: _age(path, Path(text)), reverse=True)
    # the folder may be a copy, whose note names a file of the original
    named = [Path(abspath(text)), *(folder / Path(text).name for folder in folders)]
    named = [path for path in named if path.is_file()]
    inside = [path for path in named if path.parent in folders]
    for path in dict.fromkeys([*inside, *saved, *named]):
        try:
            read_file(path, 'meta')
            yield path, None
        except Exception as error:  # a damaged file can raise any error
            yield path, f'{type(error).__name__}: {error}'


def _age(path: Path, last: Path) -> tuple[bool, int, float]:
    """A sort key, larger for later files: by number up to that of the ``last`` file, then by time.

    A copy of a work dir may have been written in any order.
    """
    kind, _, number = path.stem.partition('_')
    last_kind, _, last_number = last.stem.partition('_')
    is_numbered = kind == last_kind and number.isdigit() and last_number.isdigit()
    is_before = is_numbered and int(number) <= int(last_number)
    return is_before, int(number) if is_before else 0, path.stat().st_mtime

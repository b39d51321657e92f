"""Images to predict, and the names of what is predicted."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from pathlib import Path

SUFFIXES = {'.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp'}


def image_files(names: Iterable[str]) -> dict[Path, Path]:
    """Image files, each once, with their paths below the folder that was named.

    Args:
        names: files, folders, whose subfolders count, and patterns such as ``photos/**/*.jpg``.
    """
    found: dict[Path, tuple[Path, Path]] = {}
    for name in names:
        if (root := Path(name)).is_dir():
            files = [x for x in root.rglob('*') if x.suffix.lower() in SUFFIXES]
        elif root.exists():
            files, root = [root], root.parent
        else:
            files = [Path(x) for x in glob(name, recursive=True) if Path(x).is_file()]
            root = Path(os.path.dirname(re.split(r'[*?[]', name)[0]))
        if not files:
            raise FileNotFoundError(f'There is no image {name}')
        for file in sorted(files):
            found.setdefault(file.resolve(), (file, file.relative_to(root)))
    return dict(found.values())


def output_paths(images: Mapping[Path, Path], out: Path, ends: Sequence[str]) -> dict[Path, Path]:
    """A path in ``out`` for each image; with ``ends`` added, no two files have one name.

    Args:
        images: of :func:`image_files`.
    """
    names = {path: name.with_suffix('') for path, name in images.items()}
    if len({f'{name}{end}' for name in names.values() for end in ends}) < len(names) * len(ends):
        common = os.path.commonpath([path.resolve().parent for path in images])
        names = {path: path.resolve().relative_to(common) for path in images}
    return {path: out / name for path, name in names.items()}

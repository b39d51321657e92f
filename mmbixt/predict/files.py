"""Images to predict, and files for what is predicted, under the names of the images."""

import os
import re
from collections.abc import Iterable, Mapping
from glob import escape, glob
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmbixt.visualization.images import as_rgb
from mmbixt.visualization.palette import distinct_palette

SUFFIXES = {'.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp'}


def find_images(names: Iterable[str]) -> dict[Path, Path]:
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


def output_paths(images: Mapping[Path, Path], out: Path) -> dict[Path, Path]:
    """A path without suffix in ``out`` for each image; no two are alike, none has files yet.

    Args:
        images: of :func:`find_images`.
    """
    common = Path(os.path.commonpath([path.resolve().parent for path in images]))
    names = [
        {path: name.with_suffix('') for path, name in images.items()},
        dict(images),
        {path: path.resolve().relative_to(common) for path in images},
    ]
    chosen = next(x for x in names if len({*x.values()}) == len(x))
    paths = {path: out / name for path, name in chosen.items()}
    for path in paths.values():
        if taken := [*path.parent.glob(f'{escape(path.name)}[._]*')]:
            raise FileExistsError(f'{min(taken)} exists, choose another folder: --out')
    return paths


def palette_of(meta: Mapping[str, Any]) -> np.ndarray:
    """Colours (K,3) of classes, RGB, uint8."""
    palette = meta.get('palette')
    return np.uint8(palette) if palette else distinct_palette(min(len(meta['classes']), 256))


def write_labels(path: Path, labels: np.ndarray, palette: np.ndarray) -> None:
    """Write labels (H,W) as PNG with colours; more than 256 labels as 16-bit numbers."""
    picture = Image.fromarray(labels)
    if labels.dtype == np.uint8:
        picture.putpalette(palette.tobytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(f'{path}.png')


def write_overlay(path: Path, photo: np.ndarray, labels: np.ndarray, palette: np.ndarray) -> None:
    """Write a blend of a photo (H,W,C), BGR, and the colours of its labels (H,W)."""
    colours = Image.fromarray(palette[labels % len(palette)])
    Image.blend(Image.fromarray(as_rgb(photo)), colours, 0.5).save(f'{path}_overlay.jpg')

"""Files with the counts of each image; scores of any part of a data set follow from them."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from mmbixt.errors import UserError
from mmbixt.evaluation.boundary import main_band

FILE_NAME = 'boundary.npz'


@dataclass(frozen=True)
class ImageSums:
    """Counts of N images and K classes."""

    images: list[str]  # N names
    classes: list[str]  # K names
    counts: dict[str, np.ndarray]  # (N,K) by name; see `mmbixt.evaluation.boundary`

    @classmethod
    def stack(
        cls, images: Sequence[str], classes: Sequence[str], sums: Sequence[Mapping[str, np.ndarray]]
    ) -> 'ImageSums':
        """From the counts (K,) of each image by name."""
        counts = {name: np.stack([one[name] for one in sums]).astype(np.uint32) for name in sums[0]}
        return cls(list(images), list(classes), counts)

    def total(self) -> dict[str, np.ndarray]:
        """Counts (K,) of all images together, by name."""
        return {name: counts.sum(0, dtype=np.int64) for name, counts in self.counts.items()}

    def choose_band(self, wanted: str | None = None) -> str | None:
        """The band ``wanted``, which must be counted; without one `main_band`."""
        bands = dict.fromkeys(k.partition('/')[0] for k in self.counts if k.startswith('band'))
        if wanted and wanted not in bands:
            raise UserError(f'{wanted} was not counted. Counted bands: {", ".join(bands)}.')
        return wanted or main_band(self.counts)


def write_sums(path: str | Path, run: ImageSums) -> None:
    """Write counts to an .npz file."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    names = dict(images=np.array(run.images), classes=np.array(run.classes))
    np.savez_compressed(path, **names, **run.counts)


def read_sums(path: str | Path) -> ImageSums:
    """The counts in a file of `write_sums`. Nothing in it is executed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            counts = {name: file[name] for name in file.files}
        images, classes = (counts.pop(name).tolist() for name in ('images', 'classes'))
        shape = len(images), len(classes)
        if any(counts[name].shape != shape for name in ('all/true', *counts)):
            raise ValueError('arrays of other shapes than images x classes')
    except (ValueError, TypeError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise UserError(f'{path} is not a file of counts, or is damaged: {error}') from error
    return ImageSums(images, classes, counts)


def find_sums(path: str | Path) -> Path:
    """``path`` if it is a file; the file in a folder ``path``, or the newest in its subfolders."""
    path = Path(path)
    if path.is_file():
        return path
    if path.suffix == '.npz':
        raise UserError(f'There is no file {path}')
    if (path / FILE_NAME).exists():
        return path / FILE_NAME
    if below := list(path.rglob(FILE_NAME)):
        return max(below, key=lambda file: file.stat().st_mtime)
    raise UserError(
        f'There is no {FILE_NAME} in {path}. To write it: tools/test.py CONFIG CHECKPOINT '
        f'--boundary --work-dir {path}, or tools/analysis/boundary_eval.py --sums'
    )


def indices_of(images: Sequence[str], paths: Sequence[str]) -> list[int]:
    """Index in ``paths`` of each counted image, by its name without suffix.

    Several images of one name, in different folders, were counted in the order of the paths.
    """
    left: dict[str, list[int]] = {}
    for index, path in enumerate(paths):
        left.setdefault(Path(path).stem, []).insert(0, index)
    order = []
    for name in images:
        same = left.get(name if name in left else Path(name).stem)
        if not same:
            raise UserError(
                f'The counts are of another test set than that of the config: {name}, for example, '
                f'is not one of its {len(paths):,} images'
            )
        order.append(same.pop())
    return order


def unique_names(paths: Sequence[str]) -> list[str]:
    """Names of files without suffixes; if two are equal, with suffixes, and folders if need be."""
    files = [Path(path).absolute() for path in paths]
    names = [file.stem for file in files]
    for depth in range(1, max((len(file.parts) for file in files), default=1)):
        if len({*names}) == len({*files}):
            break
        names = ['_'.join(file.parts[1:][-depth:]) for file in files]
    return names

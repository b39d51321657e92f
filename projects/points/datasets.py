"""ModelNet40 and ShapeNetPart, each as text files with normals or as HDF5 files without.

Shapes are dicts with ``points`` (N,3), or (N,6) with normals; ``label`` or ``category``; and
``parts`` (N,) of ShapeNetPart. HDF5 needs h5py.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dataset import BaseDataset

from mmbixt.backbones.arch import check_choice
from mmbixt.registry import DATASETS

# the categories of ShapeNetPart with the number of their parts, which are numbered in this order
CATEGORIES = dict(
    **dict(Airplane=4, Bag=2, Cap=2, Car=4, Chair=4, Earphone=3, Guitar=3, Knife=2),
    **dict(Lamp=4, Laptop=2, Motorbike=6, Mug=2, Pistol=3, Rocket=3, Skateboard=3, Table=3),
)
PARTS = tuple(
    tuple(range(end - count, end))
    for count, end in zip(CATEGORIES.values(), accumulate(CATEGORIES.values()), strict=True)
)


class PointDataset(BaseDataset):
    """Base of both: text files are read when their shape is needed, HDF5 files at once.

    Args:
        data_root: folder of the unpacked archive.
        split: 'train' or 'test'; of ShapeNetPart also 'val' and 'trainval'.
        form: 'text' or 'hdf5'.
        normals: give (N,6), of text files.
        num_points: use only the first points of each shape.
        kwargs: arguments of mmengine's ``BaseDataset``.
    """

    splits: tuple[str, ...]
    delimiter: str | None = None

    def __init__(
        self,
        data_root: str,
        split: str,
        form: str = 'text',
        normals: bool = False,
        num_points: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice('split', split, self.splits)
        check_choice('form', form, ('text', 'hdf5'))
        if normals and form == 'hdf5':
            raise ValueError("normals=True needs form='text': the HDF5 files have no normals.")
        self.split, self.form, self.normals, self.num_points = split, form, normals, num_points
        super().__init__(data_root=data_root, **kwargs)

    def load_data_list(self) -> list[dict]:
        return list(self.text_files() if self.form == 'text' else self.hdf5_shapes())

    def get_data_info(self, idx: int) -> dict:
        shape = super().get_data_info(idx)
        if 'file' in shape:
            shape.update(self.read(shape['file']))
        return shape

    def read(self, file: str) -> dict[str, np.ndarray]:
        """Points, and parts from a seventh column if there is one."""
        rows = np.loadtxt(
            file, np.float32, delimiter=self.delimiter, max_rows=self.num_points, ndmin=2
        )
        parts = dict(parts=rows[:, 6].astype(np.int64)) if rows.shape[1] > 6 else {}
        return dict(points=rows[:, : 6 if self.normals else 3], **parts)

    def hdf5_files(self, list_name: str) -> Iterator[dict[str, np.ndarray]]:
        """The arrays of each file in a list; the folders of its paths are not used."""
        import h5py  # only here: no other form needs it

        for line in Path(self.data_root, list_name).read_text().split():
            with h5py.File(Path(self.data_root, Path(line).name)) as file:
                yield {key: file[key][:] for key in ('data', 'label', 'pid') if key in file}


@DATASETS.register_module()
class ModelNet40(PointDataset):
    """``modelnet40_normal_resampled`` (text) or ``modelnet40_ply_hdf5_2048`` (HDF5).

    The arguments are those of :class:`projects.points.datasets.PointDataset`.
    """

    splits = ('train', 'test')
    delimiter = ','

    def text_files(self) -> Iterator[dict]:
        root = Path(self.data_root)
        names = (root / 'modelnet40_shape_names.txt').read_text().split()
        for line in (root / f'modelnet40_{self.split}.txt').read_text().split():
            name = line.rpartition('_')[0]
            yield dict(file=str(root / name / f'{line}.txt'), label=names.index(name))

    def hdf5_shapes(self) -> Iterator[dict]:
        for file in self.hdf5_files(f'{self.split}_files.txt'):
            for points, label in zip(file['data'], file['label'].ravel(), strict=True):
                yield dict(points=points[: self.num_points], label=int(label))


@DATASETS.register_module()
class ShapeNetPart(PointDataset):
    """``shapenetcore_partanno_segmentation_benchmark_v0_normal`` (text) or ``hdf5_data`` (HDF5).

    The arguments are those of :class:`projects.points.datasets.PointDataset`.
    """

    METAINFO = dict(classes=tuple(CATEGORIES), parts=PARTS)
    splits = ('train', 'val', 'trainval', 'test')

    def text_files(self) -> Iterator[dict]:
        root = Path(self.data_root)
        lines = (root / 'synsetoffset2category.txt').read_text().splitlines()
        names = dict(reversed(line.split()) for line in lines if line.strip())
        for split in self.parts_of_split():
            listed = root / f'train_test_split/shuffled_{split}_file_list.json'
            for path in json.loads(listed.read_text()):
                folder, shape = path.split('/')[-2:]
                category = [*CATEGORIES].index(names[folder])
                yield dict(file=str(root / folder / f'{shape}.txt'), category=category)

    def hdf5_shapes(self) -> Iterator[dict]:
        for split in self.parts_of_split():
            for file in self.hdf5_files(f'{split}_hdf5_file_list.txt'):
                for points, label, parts in zip(
                    *map(file.get, ('data', 'label', 'pid')), strict=True
                ):
                    shape = dict(points=points[: self.num_points], category=int(label.item()))
                    yield dict(shape, parts=parts[: self.num_points].astype(np.int64))

    def parts_of_split(self) -> Sequence[str]:
        return ('train', 'val') if self.split == 'trainval' else (self.split,)

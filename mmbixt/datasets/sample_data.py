"""Writes generated scenes to disk in the layouts of ADE20K and COCO."""

import json
import tempfile
from multiprocessing.pool import ThreadPool
from pathlib import Path

import cv2
import numpy as np

from mmbixt.datasets.classes import coco_categories
from mmbixt.datasets.polygons import mask_to_polygons
from mmbixt.datasets.scenes import VERSION, Instance, make_scene

MANIFEST = 'sample_data.json'
ANNOTATIONS = 'coco/annotations/instances_{}2017.json'
_JPEG_QUALITY = 92
_CATEGORY_IDS = {category['name']: category['id'] for category in coco_categories()}


def write_sample_data(
    root, num_train: int = 256, num_val: int = 32, height: int = 192, width: int = 256
) -> Path:
    """Write the sample data unless it is there already.

    The folder appears all at once when everything is written. An older or incomplete one is
    replaced; a folder with anything else in it is left alone.

    Args:
        root: The folder to write; gets the sub-folders ``ade`` and ``coco``.

    Returns:
        The absolute path of the folder.

    Raises:
        FileExistsError: ``root`` holds something that is not sample data.
        OSError: ``root`` cannot be written, or the disk is full.
    """
    root = Path(root).expanduser().resolve()
    counts = {'train': num_train, 'val': num_val}
    manifest = {'generator': VERSION, **counts, 'height': height, 'width': width}
    if _is_complete(root, manifest):
        return root
    _refuse_foreign(root)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent, prefix=f'.{root.name}-') as scratch:
            fresh = Path(scratch) / 'new'
            _write_all(fresh, counts, height, width)
            (fresh / MANIFEST).write_text(json.dumps(manifest))
            # another process may have been faster
            if not _is_complete(root, manifest):
                if root.exists():
                    root.rename(Path(scratch) / 'old')
                fresh.rename(root)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"cannot write the sample data to '{root}': {reason}") from error
    return root


def scene_seed(split: str, number: int) -> int:
    """The seed of a scene; the splits share none, and more scenes do not change the first ones.

    Args:
        split: ``'train'`` or ``'val'``.
        number: Counts from 1.
    """
    return number + {'train': 0, 'val': 1_000_000_000}[split]


def image_paths(split: str, number: int) -> dict[str, str]:
    """Where the files of one scene are, relative to the root; arguments as above."""
    folder = {'train': 'training', 'val': 'validation'}[split]
    name = f'{folder}/ADE_{split}_{number:08d}'
    return {
        'ade_image': f'ade/ADEChallengeData2016/images/{name}.jpg',
        'ade_label': f'ade/ADEChallengeData2016/annotations/{name}.png',
        'coco_image': f'coco/{split}2017/{number:012d}.jpg',
    }


def _expected_files(manifest: dict) -> set[str]:
    files = {MANIFEST, ANNOTATIONS.format('train'), ANNOTATIONS.format('val')}
    for split in ('train', 'val'):
        for number in range(1, manifest[split] + 1):
            files.update(image_paths(split, number).values())
    return files


def _read_manifest(root: Path) -> dict | None:
    try:
        manifest = json.loads((root / MANIFEST).read_text())
        return manifest if {'train', 'val'} <= manifest.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def _files_below(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob('*') if not path.is_dir()}


def _is_complete(root: Path, manifest: dict) -> bool:
    return _read_manifest(root) == manifest and _expected_files(manifest) <= _files_below(root)


def _refuse_foreign(root: Path) -> None:
    """Raise unless ``root`` may be replaced: it is missing, empty or nothing but sample data."""
    if not root.exists():
        return
    found = _files_below(root) if root.is_dir() else {root.name}
    manifest = _read_manifest(root)
    foreign = found - _expected_files(manifest) if manifest else found
    if foreign:
        raise FileExistsError(
            f"'{root}' holds something else than sample data (such as '{min(foreign)}') and is "
            'left as it is; give another folder, or move that one away'
        )


def _write_all(root: Path, counts: dict[str, int], height: int, width: int) -> None:
    for path in _expected_files(dict.fromkeys(counts, 1)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    jobs = [(split, number) for split, count in counts.items() for number in range(1, count + 1)]
    coco = {split: {'images': [], 'annotations': []} for split in counts}
    print(f'making {len(jobs)} sample scenes:', end='', flush=True)
    with ThreadPool() as pool:
        done = pool.imap(lambda job: (job, _write_scene(root, *job, height, width)), jobs)
        for count, ((split, number), annotations) in enumerate(done, 1):
            _add_to_coco(coco[split], number, height, width, annotations)
            if count * 10 // len(jobs) > (count - 1) * 10 // len(jobs):
                print(f' {count * 100 // len(jobs)}%', end='', flush=True)
    print()
    for split, content in coco.items():
        content['categories'] = coco_categories()
        (root / ANNOTATIONS.format(split)).write_text(json.dumps(content))


def _write_scene(root: Path, split: str, number: int, height: int, width: int) -> list[dict]:
    """Write the pictures of one scene and return its COCO annotations, still without ids."""
    scene = make_scene(scene_seed(split, number), height, width)
    paths = image_paths(split, number)
    options = [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY]
    picture = cv2.imencode('.jpg', scene.image[..., ::-1], options)[1].tobytes()
    (root / paths['ade_image']).write_bytes(picture)
    (root / paths['coco_image']).write_bytes(picture)
    (root / paths['ade_label']).write_bytes(cv2.imencode('.png', scene.semantic)[1].tobytes())
    return [_annotate(instance) for instance in scene.instances]


def _annotate(instance: Instance) -> dict:
    rows, columns = np.nonzero(instance.mask)
    left, top = int(columns.min()), int(rows.min())
    return {
        'category_id': _CATEGORY_IDS[instance.category],
        'segmentation': mask_to_polygons(instance.mask),
        'area': len(rows),
        'bbox': [left, top, int(columns.max()) - left + 1, int(rows.max()) - top + 1],
        'iscrowd': 0,
    }


def _add_to_coco(content: dict, number: int, height: int, width: int, annotations) -> None:
    name = Path(image_paths('train', number)['coco_image']).name
    content['images'].append({'id': number, 'file_name': name, 'height': height, 'width': width})
    for annotation in annotations:
        identity = {'id': len(content['annotations']) + 1, 'image_id': number}
        content['annotations'].append(identity | annotation)

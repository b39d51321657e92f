"""Write generated scenes to disk in the layouts of ADE20K, COCO and ImageNet."""

import json
import tempfile
from multiprocessing.pool import ThreadPool
from pathlib import Path

import cv2
import numpy as np
from filelock import FileLock
from mmengine.fileio import dump, put, put_text
from tqdm import tqdm

from mmbixt.scenes.scene import VERSION, imagenet_class, make_scene

MANIFEST = 'sample_data.json'
FIRST_SEED = {'train': 1, 'val': 1_000_000_001}  # seed of the scene with number 1


def write_scenes(
    root, num_train: int = 256, num_val: int = 32, height: int = 192, width: int = 256
) -> Path:
    """Write the sample data unless they exist; returns the absolute path of the folder.

    The folder has a subfolder for each layout (``ade``, ``coco``, ``imagenet``). It is renamed to
    ``root`` when it is complete; of several processes one writes it, and the others wait.
    """
    root = Path(root).expanduser().resolve()
    settings = dict(version=VERSION, train=num_train, val=num_val, size=[height, width])
    if not _is_complete(root, settings):  # the lock needs write permission
        root.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(root.with_name(f'.{root.name}.lock')):
            if not _is_complete(root, settings):
                print(f'making {num_train + num_val} sample scenes in {root}', flush=True)
                with tempfile.TemporaryDirectory(dir=root.parent, prefix=f'.{root.name}-') as new:
                    _write_split(Path(new, 'new'), 'train', num_train, height, width)
                    _write_split(Path(new, 'new'), 'val', num_val, height, width)
                    Path(new, 'new', MANIFEST).write_text(json.dumps(settings))
                    Path(new, 'new').rename(root)
    return root


def _is_complete(root: Path, settings: dict) -> bool:
    if not root.exists() or not any(root.iterdir()):
        return False
    if not (root / MANIFEST).exists() or json.loads((root / MANIFEST).read_text()) != settings:
        raise FileExistsError(f'{root} has other files than these scenes: move it away first')
    return True


def _write_split(root: Path, split: str, count: int, height: int, width: int) -> None:
    from torchvision.models.detection import MaskRCNN_ResNet50_FPN_Weights  # slow to import

    names = MaskRCNN_ResNet50_FPN_Weights.COCO_V1.meta['categories']  # by COCO's ids, with gaps
    categories = [{'id': k, 'name': name} for k, name in enumerate(names) if k and name != 'N/A']
    coco = {'images': [], 'annotations': [], 'categories': categories}
    ade, folder = root / 'ade/ADEChallengeData2016', dict(train='training', val='validation')[split]
    labels = ''  # a list of names and labels, which mmpretrain reads instead of class folders
    seeds = range(FIRST_SEED[split], FIRST_SEED[split] + count)
    with ThreadPool() as pool:
        scenes = pool.imap(lambda seed: make_scene(seed, height, width), seeds)
        for number, scene in enumerate(tqdm(scenes, total=count, disable=None), 1):
            name, coco_name = f'{split}_{number:08d}', f'{number:012d}.jpg'
            picture = cv2.imencode('.jpg', scene.image[..., ::-1])[1].tobytes()
            label_map = cv2.imencode('.png', scene.semantic)[1].tobytes()
            put(picture, ade / f'images/{folder}/ADE_{name}.jpg')
            put(label_map, ade / f'annotations/{folder}/ADE_{name}.png')
            put(picture, root / f'coco/{split}2017/{coco_name}')
            put(picture, root / f'imagenet/{split}/{name}.jpg')
            labels += f'{name}.jpg {imagenet_class(scene)}\n'
            coco['images'].append(dict(id=number, file_name=coco_name, height=height, width=width))
            for category, mask in scene.instances:
                ids = dict(id=len(coco['annotations']) + 1, category_id=names.index(category))
                coco['annotations'].append({**ids, 'image_id': number, **_outline(mask)})
    dump(coco, root / f'coco/annotations/instances_{split}2017.json')
    put_text(labels, root / f'imagenet/meta/{split}.txt')


def _outline(mask: np.ndarray) -> dict:
    """COCO's run-length encoding of a mask (H,W), column by column; its area and box."""
    changes = np.flatnonzero(np.diff(mask.ravel(order='F'), prepend=False))
    counts = np.diff(changes, prepend=0, append=mask.size).tolist()
    runs, box = dict(size=mask.shape, counts=counts), cv2.boundingRect(mask.astype(np.uint8))
    return dict(segmentation=runs, area=int(mask.sum()), bbox=box, iscrowd=0)

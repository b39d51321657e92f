"""Detectors and classifiers by the inferencers of mmdet and mmpretrain, with whole checkpoints."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from mmengine.config import Config
from PIL import Image

import mmbixt.registry  # noqa: F401  mmengine then reads its own checkpoints
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import load_whole_state


class Detector:
    """A detector: a picture of each image, and ``predictions.json`` in COCO's form."""

    def __init__(self, config: Config, checkpoint: str, device: str | None, out: Path) -> None:
        from mmdet.apis import DetInferencer

        self.detect = DetInferencer(config, checkpoint, device, show_progress=False)
        load_whole_state(self.detect.model, load(checkpoint, 'cpu'))
        self.file, self.images, self.found = out / 'predictions.json', [], []

    def __call__(self, path: Path, out: Path, name: Path) -> None:
        """Predict an image; write a picture."""
        result = self.detect(str(path), return_datasamples=True, return_vis=True)
        [sample], [picture] = result['predictions'], result['visualization']
        height, width = sample.ori_shape
        number = len(self.images) + 1
        about = dict(id=number, file_name=str(name), width=width, height=height)
        self.images.append(about)
        self.found += [dict(image_id=number, **x) for x in as_coco(sample.pred_instances)]
        out.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(f'{out}.jpg')

    def finish(self) -> None:
        """Write the file; an ``id`` of a category is its label + 1."""
        classes = self.detect.model.dataset_meta['classes']
        categories = [dict(id=i + 1, name=name) for i, name in enumerate(classes)]
        content = dict(images=self.images, annotations=self.found, categories=categories)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(content))


def as_coco(instances: Any) -> list[dict[str, Any]]:
    """Boxes (x, y, width, height), scores and masks (RLE) of an image."""
    from pycocotools.mask import encode

    found = []
    for i, (box, label) in enumerate(zip(instances.bboxes, instances.labels, strict=True)):
        x, y, right, bottom = box.tolist()
        score = float(instances.scores[i])
        found.append(
            dict(category_id=int(label) + 1, bbox=[x, y, right - x, bottom - y], score=score)
        )
        if 'masks' in instances:
            mask = encode(np.asfortranarray(instances.masks[i].cpu().numpy(), np.uint8))
            found[-1]['segmentation'] = {**mask, 'counts': mask['counts'].decode()}
    return found


class Classifier:
    """A classifier: a picture of each image, and a line in ``predictions.jsonl``."""

    def __init__(self, config: Config, checkpoint: str, device: str | None, out: Path) -> None:
        from mmpretrain import ImageClassificationInferencer

        self.classify = ImageClassificationInferencer(config, checkpoint, device)
        load_whole_state(self.classify.model, load(checkpoint, 'cpu'))
        self.file, self.lines = out / 'predictions.jsonl', []

    def __call__(self, path: Path, out: Path, name: Path) -> None:
        """Predict an image; write a picture."""
        out.parent.mkdir(parents=True, exist_ok=True)
        # mmpretrain draws a progress bar for each image
        with TemporaryDirectory(dir=out.parent) as folder, redirect_stdout(StringIO()):
            [result] = self.classify(str(path), show_dir=folder)
            [picture] = Path(folder).iterdir()
            picture.rename(f'{out}.png')
        result = {key: x for key, x in result.items() if key != 'pred_scores'}
        self.lines.append(json.dumps(dict(image=str(name), **result)))

    def finish(self) -> None:
        """Write the file."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text('\n'.join([*self.lines, '']))

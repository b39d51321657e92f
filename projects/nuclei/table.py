"""The table of README.md, from the work dirs of run.sh.

Detections are at most 400 an image: COCO's 100 are fewer than the nuclei of some images.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from faster_coco_eval import COCO, COCOeval_faster
from mmengine.registry import MODELS, init_default_scope
from pycocotools import mask as rle
from scipy.optimize import linear_sum_assignment

from mmbixt.cli import run
from mmbixt.config import PROJECTS, read_config

sys.path.append(str(PROJECTS))
from tables import markdown, parse_args, show, training

NETWORKS = {
    'resnet18': 'ResNet-18',
    'swin_t': 'Swin-T',
    'bisa_swin_t': 'BiSA-Swin-T',
    'biformer_t': 'BiFormer-T',
    'vit_ti8': 'ViT-Ti/8',
    'xcit_t12_p8': 'XCiT-T12/8',
    'bixt_ti_s8_lpi': 'BiXT-Ti/8, LPI',
}
SCORES = ['box AP', 'mask AP', 'mask AP50', 'boundary AP', 'TP / (TP + FP + FN)']


def average_precision(truths: dict, found: list[dict], kind: str) -> np.ndarray:
    """AP (10,) at IoU 0.5, 0.55, ... of 'bbox', 'segm' or 'boundary', per cent."""
    other = 'segmentation' if kind == 'bbox' else 'bbox'
    found = [{k: v for k, v in x.items() if k != other} for x in found]
    coco = COCO(truths)
    evaluation = COCOeval_faster(coco, coco.loadRes(found), kind, print_function=lambda *_: None)
    evaluation.params.maxDets = [400]
    evaluation.evaluate()
    evaluation.accumulate()
    return 100 * evaluation.eval['precision'][:, :, 0, 0, -1].mean(1)


def counts(truths: list[dict], found: list[dict]) -> np.ndarray:
    """TP, FP and FN of an image: as many pairs as possible whose masks have an IoU of 0.5."""
    masks = [[x['segmentation'] for x in objects] for objects in (found, truths)]
    overlaps = np.reshape(rle.iou(*masks, [0] * len(truths)), (len(found), len(truths)))
    pairs = linear_sum_assignment(overlaps >= 0.5, maximize=True)
    matched = int((overlaps[pairs] >= 0.5).sum())
    return np.array([matched, len(found) - matched, len(truths) - matched])


def images_of(truths: dict, found: list[dict], score: float = 0.5) -> Iterator[tuple]:
    """Each image of a file in COCO's format, its objects, and detections from a score on."""
    objects = {image['id']: ([], []) for image in truths['images']}
    for x in truths['annotations']:
        objects[x['image_id']][0].append(x)
    for x in found:
        if x['score'] >= score:
            objects[x['image_id']][1].append(x)
    for image in truths['images']:
        yield image, *objects[image['id']]


def scores(truths: dict, found: list[dict]) -> list[float]:
    """SCORES, per cent."""
    box, mask, boundary = (
        average_precision(truths, found, kind) for kind in ('bbox', 'segm', 'boundary')
    )
    matched, *others = sum(counts(*x) for _, *x in images_of(truths, found))
    share = 100 * matched / (matched + sum(others))
    return [box.mean(), mask.mean(), mask[0], boundary.mean(), share]


def make_rows(runs: Path) -> Iterator[list[str]]:
    for name, title in NETWORKS.items():
        cfg = read_config(str(PROJECTS / f'nuclei/configs/maskrcnn_{name}_nuclei.py'))
        init_default_scope(cfg.default_scope)
        with torch.device('meta'):
            parameters = sum(x.numel() for x in MODELS.build(cfg.model).parameters())
        row = [title, f'{parameters / 1e6:.1f} M']
        file = runs / name / 'test/predictions.segm.json'
        if file.exists():
            truths = json.loads(Path(cfg.test_evaluator.ann_file).read_text())
            images, seconds, device = training(runs / name)
            values = (f'{x:.1f}' for x in scores(truths, json.loads(file.read_text())))
            yield [*row, images, seconds, *values, device]
        else:
            yield [*row, 'not run', *[''] * (len(SCORES) + 2)]


def main() -> None:
    args = parse_args(__doc__)
    header = ['network', 'parameters', 'images seen', 'seconds', *SCORES, 'on']
    show(markdown([header, *make_rows(args.runs)]), args.update)


if __name__ == '__main__':
    run(main)

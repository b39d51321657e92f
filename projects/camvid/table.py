"""The tables of README.md, from the work dirs of run.sh."""

import sys
from collections.abc import Iterator
from pathlib import Path

from mmengine.registry import MODELS, init_default_scope

from mmbixt.cli import run
from mmbixt.config import PROJECTS, read_config
from mmbixt.evaluation.boundary import class_scores, scores
from mmbixt.evaluation.sums import FILE_NAME, read_sums

sys.path += [str(PROJECTS), str(PROJECTS.parent / 'tools/analysis')]
from get_flops import measure_model
from tables import markdown, parse_args, show, training

NETWORKS = {
    'resnet18': 'ResNet-18',
    'vit_ti16': 'ViT-Ti/16',
    'xcit_t12_p16': 'XCiT-T12/16',
    'xcit_t12_p16-1': 'XCiT-T12/16, seed 1',
    'bixt_ti': 'BiXT-Ti/16',
    'biformer_t': 'BiFormer-T',
    'swin_t': 'Swin-T',
    'bisa_swin_t': 'BiSA-Swin-T',
}
SCORES = {'mIoU': 'all/mIoU', 'boundary mIoU': 'band3px/mIoU', 'boundary F': 'boundaryF3px/mF'}


def measure(name: str) -> list[str]:
    """Parameters and multiply-adds at 480 x 360, in words."""
    cfg = read_config(str(PROJECTS / f'camvid/configs/semfpn_{name.partition("-")[0]}_camvid.py'))
    init_default_scope(cfg.default_scope)
    _, parameters, macs = measure_model(MODELS.build(cfg.model).eval(), 360, 480)[-1]
    return [f'{parameters / 1e6:.1f} M', f'{macs / 1e9:.1f} G']


def make_rows(runs: Path, scored: dict[str, dict]) -> Iterator[list[str]]:
    for name, title in NETWORKS.items():
        row = [title, *measure(name)]
        if name in scored:
            images, seconds, device = training(runs / name)
            values = (f'{scored[name][score]:.1f}' for score in SCORES.values())
            yield [*row, images, seconds, *values, device]
        else:
            yield [*row, 'not run', *[''] * (len(SCORES) + 2)]


def class_rows(runs: Path, scored: dict[str, dict]) -> Iterator[list[str]]:
    """IoU of each class for the networks with the highest and the lowest mIoU."""
    ranked = sorted(scored, key=lambda name: -scored[name]['all/mIoU'])
    for name in dict.fromkeys((ranked[0], ranked[-1])):
        sums = read_sums(runs / name / 'test' / FILE_NAME)
        if name == ranked[0]:
            yield ['IoU', *sums.classes]
        yield [NETWORKS[name], *(f'{iou:.1f}' for iou in class_scores(sums.total())['all/IoU'])]


def make_tables(runs: Path) -> str:
    files = {name: runs / name / 'test' / FILE_NAME for name in NETWORKS}
    scored = {name: scores(read_sums(x).total()) for name, x in files.items() if x.exists()}
    header = ['network', 'parameters', 'multiply-adds', 'images seen', 'seconds', *SCORES, 'on']
    tables = [markdown([header, *make_rows(runs, scored)])]
    if scored:
        tables.append(markdown(list(class_rows(runs, scored))))
    return '\n\n'.join(tables)


def main() -> None:
    args = parse_args(__doc__)
    show(make_tables(args.runs), args.update)


if __name__ == '__main__':
    run(main)

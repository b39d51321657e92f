"""Small runs for reports, and a parser of pages."""

import json
from html.parser import HTMLParser
from pathlib import Path

import torch
from helpers import CONFIGS
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmbixt.evaluation import image_sums
from mmbixt.evaluation.sums import ImageSums
from mmbixt.scenes.files import write_scenes

STEPS = range(10, 101, 10)


def train_record(step, **more):
    return {'lr': 1e-3 / step, 'loss': 10 / step, 'iter': step, 'step': step, **more}


def val_record(step, score):
    return {'mIoU': score, 'band3px/mIoU': score / 2, 'step': step}


def write_log(folder, start, records, end=''):
    """Write a log in the format of mmengine; returns its folder."""
    logs = folder / start / 'vis_data'
    logs.mkdir(parents=True)
    (logs / 'scalars.json').write_text('\n'.join(map(json.dumps, records)) + f'\n{end}')
    return logs.parent


def write_resumed_logs(folder):
    """Write the logs of a run that was killed while logging iteration 80, and resumed from 50."""
    records = [train_record(step) for step in STEPS]
    first = [*records[:5], val_record(50, 20.0), *records[5:7]]
    write_log(folder, '20250101_100000', first, end='{"lr": 0.001, "lo')
    write_log(folder, '20250102_100000', [*records[5:], val_record(100, 40.0)])


def make_run(folder, images=4, **options):
    """Write the work dir of an untrained segmentor, with the files of a training."""
    root = write_scenes(folder / 'data', num_train=1, num_val=images, height=48, width=64)
    config = Config.fromfile(CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py')
    config.test_dataloader.dataset.data_root = str(root / 'ade/ADEChallengeData2016')
    config.test_dataloader.dataset.pipeline[1].scale = (128, 96)
    config.test_dataloader.update(num_workers=0, persistent_workers=False)
    config.merge_from_dict(options)
    work_dir = folder / 'run'
    work_dir.mkdir()
    config.dump(work_dir / 'mine.py')
    torch.manual_seed(0)
    init_default_scope('mmseg')
    model = MODELS.build(config.model)
    torch.save(dict(meta={}, state_dict=model.state_dict()), work_dir / 'iter_100.pth')
    # a wrong absolute path, because the work dir was moved
    (work_dir / 'last_checkpoint').write_text('/nowhere/run/iter_100.pth')
    write_resumed_logs(work_dir)
    return work_dir


def sums(classes, *pairs, **options):
    """Counts of images from pairs of true and predicted label maps."""
    image_counts = [image_sums(truth, other, len(classes), **options) for truth, other in pairs]
    return ImageSums.stack([f'image {i}.jpg' for i in range(len(pairs))], classes, image_counts)


class Reader(HTMLParser):
    """Elements (name, attributes) of a page, and its text without scripts and style."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text = [('', {})], ''
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.elements[-1][0] not in ('script', 'style'):
            self.text += data

    def all(self, tag, **attributes):
        wanted = attributes.items()
        return [found for name, found in self.elements if name == tag and wanted <= found.items()]


def read_page(file: Path) -> Reader:
    return Reader(file.read_text('utf-8'))

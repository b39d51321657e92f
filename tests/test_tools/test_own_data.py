"""The page "Your own data set": its configs and its commands, in its order, on generated images."""

import re
from pathlib import Path

import mmengine
import pytest
import torch
from documents import shown
from helpers import CONFIGS, official_state, only_in_zoo, put_in_cache, python
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint
from PIL import Image
from running import NO_WORKERS, TWO_STEPS
from test_report.runs import read_page

from mmbixt.checkpoints.loader import load
from mmbixt.config import read_config
from mmbixt.sample.sample_data import write_sample_data

PAGE = (CONFIGS.parent / 'docs/own_data.md').read_text()
BLOCKS = dict(re.findall(r'<!-- file: (\S+) -->\n```python\n(.*?)```', PAGE, re.DOTALL))
COMMANDS = re.findall(
    r'^python tools/.*', ''.join(re.findall(r'```bash\n(.*?)```', PAGE, re.S)), re.M
)
MINE = 'work_dirs/camvid_small/iter_600.pth'
# what is shorter and smaller than on the page
DET = ['train_cfg.max_epochs=1', 'train_dataloader.dataset.pipeline.3.scale=(96,72)']
DET += ['val_dataloader.dataset.pipeline.1.scale=(96,72)']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A user's folder: the configs of the page, and a few images in the folders that it names."""
    folder = tmp_path_factory.mktemp('user')
    for name, content in BLOCKS.items():
        (folder / name).write_text(content)
    scenes = write_sample_data(folder / 'scenes', num_train=2, num_val=2, height=72, width=96)
    (folder / 'data').mkdir()
    coco = (scenes / 'coco').rename(folder / 'data/coco_mini')
    for split in ('train', 'val'):
        (coco / f'{split}2017').rename(coco / split)
        file = coco / f'annotations/instances_{split}2017.json'
        file.rename(coco / f'annotations/instances_{split}.json')
    for split, name in (('train', 'training'), ('val', 'validation')):
        for kind, folders in (('img_dir', 'images'), ('ann_dir', 'annotations')):
            new = folder / f'data/camvid/{kind}/{split}'
            new.parent.mkdir(parents=True, exist_ok=True)
            (scenes / f'ade/ADEChallengeData2016/{folders}/{name}').rename(new)
    for split in ('train', 'val'):
        for i, kind in enumerate(('car', 'tree')):
            photos = folder / f'data/photos/{split}/{kind}'
            photos.mkdir(parents=True)
            for file in sorted((scenes / f'imagenet/{split}').iterdir())[i::2]:
                file.rename(photos / file.name)
    for file in (folder / 'data/camvid/ann_dir').rglob('*.png'):  # 11 classes, and 255
        labels = Image.open(file)
        labels.point([255, *(i % 11 for i in range(255))]).save(file)
    return folder


@only_in_zoo
def test_commands(folder, within):
    """All that the page tells to run, in its order; trainings of few steps and small images."""
    photo = str(next((folder / 'data/camvid/img_dir/val').iterdir()))
    for line in COMMANDS:
        line = line.replace('iter_600', 'iter_2').replace('photo.jpg', photo)
        _, path, *arguments = line.split()
        tool = path.removeprefix('tools/')
        if tool == 'train.py':
            changes = DET if 'coco' in arguments[0] else TWO_STEPS
            arguments += ['--cfg-options', *NO_WORKERS, *changes]
        if tool == 'analysis/report.py':
            arguments += ['--no-model']
        within(tool, *arguments, cwd=folder)
    tools = [line.split()[1].removeprefix('tools/') for line in COMMANDS]
    own = ['train.py', 'analysis/report.py']
    assert tools == ['check_dataset.py', *own, 'test.py', 'predict.py', *own]
    for name in ('camvid_small', 'coco_small'):
        page = read_page(folder / f'work_dirs/{name}/report.html')
        assert len(page.all('svg')) == 3
    with Image.open(folder / 'results' / Path(photo).with_suffix('.png').name) as labels:
        assert labels.size == (96, 72)


@only_in_zoo
def test_classifier_of_own_photos(folder, within):
    changes = ['model.backbone.init_cfg=None', 'model.neck.init_cfg=None', 'train_cfg.max_epochs=1']
    sizes = ['train_dataloader.batch_size=2', *NO_WORKERS]
    done = within('train.py', 'photos.py', '--cfg-options', *changes, *sizes, cwd=folder)
    assert 'accuracy/top1: ' in done.said
    checkpoint = next(folder.glob('work_dirs/photos/epoch_*.pth'))
    done = within('test.py', 'photos.py', checkpoint, '--out', 'photos.pkl', cwd=folder)
    accuracy = re.search(r'accuracy/top1: ([\d.]+)', done.said)[1]
    (code,) = shown('wrong classes')
    wrong = python('-W', 'ignore', '-c', code, cwd=folder).splitlines()
    images = mmengine.load(folder / 'photos.pkl')
    assert float(accuracy) == pytest.approx(100 * (1 - len(wrong) / len(images)), abs=0.01)


def test_beginning_with_weights(folder, monkeypatch):
    """From a segmentor of ADE20K all but the last layer is loaded; from a backbone all of it."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv('TORCH_HOME', str(folder))
    weights = dict(meta={}, state_dict=official_state('whole__sem_fpn_xcit_tiny_12_p16'))
    put_in_cache('xcit://ade-semfpn-tiny12-p16', weights, folder)
    Path(MINE).parent.mkdir(parents=True, exist_ok=True)
    torch.save(weights, MINE)
    cfg = read_config('camvid_from_ade.py')
    init_default_scope('mmseg')
    model = MODELS.build(cfg.model)
    load_checkpoint(model, cfg.load_from, 'cpu')
    given, own = load(cfg.load_from)['state_dict'], model.state_dict()
    new = {k for k, x in own.items() if k not in given or not torch.equal(x, given[k])}
    new = {key for key in new if not key.endswith('num_batches_tracked')}  # old files have none
    assert new == {'decode_head.conv_seg.weight', 'decode_head.conv_seg.bias'}
    other = MODELS.build(read_config('camvid_from_mine.py').model)
    other.init_weights()
    for one, two in zip(model.backbone.parameters(), other.backbone.parameters(), strict=True):
        assert torch.equal(one, two)

"""The page "Your own data set": its configs and its commands, in its order, on generated images."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from documents import shown
from helpers import CONFIGS, put_segmentor_in_cache
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample
from PIL import Image
from running import NO_WORKERS, TWO_STEPS

from mmbixt.checkpoints.loader import load
from mmbixt.config import read_config
from mmbixt.scenes.files import write_scenes

PAGE = (CONFIGS.parent / 'docs/own_data.md').read_text()
BASH = ''.join(re.findall(r'```bash\n(.*?)```', PAGE, re.S)).replace('\\\n', ' ')
COMMANDS = re.findall(r'^python tools/(.*?)(?:  #.*)?$', BASH, re.M)
CLASSES = [f'class {i}' for i in range(11)]
WRITES = 'convert_labels.py', 'new_config.py'
MINE = 'work_dirs/camvid/iter_4800.pth'
# what is shorter and smaller than on the page
SEG = ['model.backbone.init_cfg=None', *TWO_STEPS]
CLS = ['model.backbone.init_cfg=None', 'model.neck.init_cfg=None', 'train_cfg.max_epochs=1']
DET = ['model.backbone.init_cfg=None', 'train_cfg.max_epochs=1']
CHOICE = 'train_dataloader.dataset.pipeline.4.transforms'
DET += [f'{CHOICE}.{i}.scale=(96,72)' for i in ('0.0', '1.1')]
DET += ['val_dataloader.dataset.pipeline.1.scale=(96,72)']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A user's folder: the configs of the page, and a few images in the folders that it names."""
    folder = tmp_path_factory.mktemp('user')
    (folder / 'classes.txt').write_text('\n'.join(CLASSES))
    scenes = write_scenes(folder / 'scenes', num_train=2, num_val=2, height=72, width=96)
    nuclei = CONFIGS.parent / 'projects/nuclei/tests/data'
    shutil.copytree(nuclei, folder / 'data/nuclei')
    for split, name in (('train', 'training'), ('val', 'validation')):
        for kind, folders in (('img_dir', 'images'), ('ann_dir', 'annotations')):
            new = folder / f'data/camvid/{kind}/{split}'
            new.parent.mkdir(parents=True, exist_ok=True)
            (scenes / f'ade/ADEChallengeData2016/{folders}/{name}').rename(new)
    for split in ('train', 'val'):
        for file, kind in zip(
            (scenes / f'imagenet/{split}').iterdir(), ('car', 'tree'), strict=True
        ):
            photos = folder / f'data/photos/{split}/{kind}'
            photos.mkdir(parents=True)
            file.rename(photos / file.name)
    for file in (folder / 'data/camvid/ann_dir').rglob('*.png'):  # 11 classes, and no class
        ignored = 11 if file.parent.name == 'train' else 255
        labels = Image.open(file)
        labels.point([ignored, *(i % 11 for i in range(255))]).save(file)
    (folder / 'labels').mkdir()
    (folder / 'data/camvid/ann_dir/train').rename(folder / 'labels/train')
    return folder


@pytest.fixture(scope='module')
def written(folder, within):
    """With the labels and the configs that the first tools of the page write."""
    for tool, *arguments in map(str.split, COMMANDS):
        if tool in WRITES:
            within(tool, *arguments, cwd=folder)
    return folder


@pytest.mark.zoo
def test_commands(written, within):
    """All that the page tells to run, in its order; trainings of few steps and small images."""
    photo = str(next((written / 'data/camvid/img_dir/val').iterdir()))
    for tool, *arguments in map(str.split, COMMANDS):
        if '--fast-dev-run' in arguments:
            arguments += ['--cfg-options', *NO_WORKERS]
        elif tool == 'train.py':
            changes = {'nuclei.py': DET, 'photos.py': CLS}.get(arguments[0], SEG)
            arguments += ['--cfg-options', *NO_WORKERS, *changes]
        for name, other in (('_4800', '_2'), ('_100', '_1'), ('_43', '_1'), ('photo.jpg', photo)):
            arguments = [x.replace(name, other) for x in arguments]
        if tool not in WRITES:
            within(tool, *arguments, cwd=written)
    assert len(COMMANDS) == 16
    with Image.open(written / 'results' / Path(photo).with_suffix('.png').name) as labels:
        assert labels.size == (96, 72)
    lines = (written / 'classified/predictions.jsonl').read_text().splitlines()
    assert {json.loads(line)['pred_class'] for line in lines} <= {'car', 'tree'}
    assert len(lines) == len([*(written / 'data/photos/val').rglob('*.jpg')]) > 0


@pytest.mark.parametrize('setting', re.findall(r'`((?:loss_decode|sampler)=.*?)`', PAGE))
def test_rare_classes(written, setting, monkeypatch):
    """Both settings of the page train with pixels that do not count."""
    monkeypatch.chdir(written)
    cfg = read_config('camvid.py')
    change = eval(f'dict({setting})', dict(weights=cfg.weights))
    cfg.merge_from_dict(dict(model=dict(backbone=dict(init_cfg=None), decode_head=change)))
    init_default_scope('mmseg')
    model = revert_sync_batchnorm(MODELS.build(cfg.model))
    labels = torch.randint(11, (1, 64, 64))
    labels[:, :8] = 255
    sample = SegDataSample(gt_sem_seg=PixelData(data=labels), metainfo=dict(img_shape=(64, 64)))
    losses = model.loss(torch.randn(2, 3, 64, 64), [sample, sample])
    assert losses['decode.loss_ce'].mean().isfinite()


def test_beginning_with_weights(written, monkeypatch):
    """From a segmentor of ADE20K all but the last layer is loaded; from a backbone all of it."""
    monkeypatch.chdir(written)
    monkeypatch.setenv('TORCH_HOME', str(written))
    for name in ('from ade', 'from mine'):
        Path(f'{name}.py').write_text(f"_base_ = './camvid.py'\n{shown(name)[0]}")
    Path(MINE).parent.mkdir(parents=True, exist_ok=True)
    torch.save(put_segmentor_in_cache(written), MINE)
    cfg = read_config('from ade.py')
    init_default_scope('mmseg')
    model = MODELS.build(cfg.model)
    load_checkpoint(model, cfg.load_from, 'cpu')
    given, own = load(cfg.load_from)['state_dict'], model.state_dict()
    new = {k for k, x in own.items() if k not in given or not torch.equal(x, given[k])}
    new = {key for key in new if not key.endswith('num_batches_tracked')}  # old files have none
    assert new == {'decode_head.conv_seg.weight', 'decode_head.conv_seg.bias'}
    other = MODELS.build(read_config('from mine.py').model)
    other.init_weights()
    for one, two in zip(model.backbone.parameters(), other.backbone.parameters(), strict=True):
        assert torch.equal(one, two)

"""tools/new_config.py on generated images; test_own_data.py trains what it writes."""

import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, PARAM_SCHEDULERS, init_default_scope
from PIL import Image

LIKE = 'semfpn_xcit_t12_p16_ade20k'
BOXES = 'retinanet_biformer_t_1x_coco'
HEADS = 'bbox_head', 'mask_head'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Ten images in subfolders, the labels 0 to 2 and 255, three names."""
    monkeypatch.chdir(tmp_path)
    for i in range(10):
        for kind, ending in (('images', 'leftImg.jpg'), ('labels', 'ids.png')):
            file = tmp_path / kind / f'town{i % 2}' / f'{i}_{ending}'
            file.parent.mkdir(parents=True, exist_ok=True)
            labels = np.full((100, 200), 0, np.uint8)
            labels[:10], labels[10:11, :10], labels[20:] = 1, 2, 255
            Image.fromarray(labels if i % 2 else labels.T).save(file)  # upright ones, too
    (tmp_path / 'classes.txt').write_text('road\ncar\nsign\n')
    return tmp_path


@pytest.fixture
def new_config(within):
    def new_config(*arguments, like=LIKE, fails=False):
        files = '--images', 'images', *arguments, '--like', like, '--out', 'my.py'
        return within('new_config.py', *files, fails=fails)

    return new_config


SEG = '--labels', 'labels', '--classes', 'classes.txt'


def relabel(folder, change):
    for file in (folder / 'labels').rglob('*.png'):
        Image.fromarray(change(np.asarray(Image.open(file)))).save(file)


def test_label_maps(folder, new_config):
    done = new_config(*SEG, '--split', 0.2, like='upernet_xcit_t12_p16_ade20k')
    assert '8 images for training' in done.stdout
    assert '200 x 100 pixels' in done.stdout
    assert '  sign                0.25% of the pixels, in 8 images   rare' in done.stdout
    cfg = Config.fromfile('my.py')
    init_default_scope('mmseg')
    parts = [DATASETS.build(cfg[f'{split}_dataloader'].dataset) for split in ('train', 'val')]
    names = [{data['img_path'] for data in part} for part in map(list, map(infos, parts))]
    assert [len(part) for part in names] == [8, 2]
    assert not names[0] & names[1]
    sample = parts[0][0]
    assert sample['inputs'].shape[1:] == cfg.crop_size == (96, 96)
    assert parts[0].metainfo['classes'] == ['road', 'car', 'sign']
    assert cfg.model.decode_head.num_classes == cfg.model.auxiliary_head.num_classes == 3
    assert cfg.scale == (256, 128)  # small images are enlarged
    assert np.argsort(cfg.weights).tolist() == [0, 1, 2]
    assert cfg.tta_pipeline[1].transforms[0][0].scale == (128, 64)
    short = changed(r'iterations = \d+', 'iterations = 40')
    found = rates(short, 1)
    assert (len(found), found.index(1), found[-1]) == (40, 1, pytest.approx(0, abs=0.03))
    assert short.train_cfg.val_interval == short.default_hooks.checkpoint.interval == 5
    assert short.default_hooks.logger.interval == 50
    for file in ('my.py', 'my_train.txt'):
        assert new_config(*SEG, fails=True).stderr == f'FileExistsError: {file} exists.\n'
        Path(file).unlink()


def infos(dataset):
    return (dataset.get_data_info(i) for i in range(len(dataset)))


def changed(line, new):
    """The config with another line, as users change it."""
    text, count = re.subn(f'^{line}', new, Path('my.py').read_text(), flags=re.MULTILINE)
    assert count == 1
    Path('other.py').write_text(text)
    return Config.fromfile('other.py')


def rates(cfg, epoch_length):
    """The learning rate of each step, as a part of that of the config."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1)
    about = dict(optimizer=optimizer, epoch_length=epoch_length)
    schedulers = [PARAM_SCHEDULERS.build(x, default_args=about) for x in cfg.param_scheduler]
    found = []
    steps = cfg.train_cfg.get('max_iters') or cfg.train_cfg.max_epochs * epoch_length
    for step in range(1, steps + 1):
        found.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        for scheduler in schedulers:
            if not scheduler.by_epoch or step % epoch_length == 0:
                scheduler.step()
    return found


def test_labels_from_1(folder, new_config):
    relabel(folder, lambda x: np.where(x == 255, 255, x + 1).astype(np.uint8))
    new_config(*SEG, '--val-images', 'images', '--val-labels', 'labels')
    assert Config.fromfile('my.py').data.reduce_zero_label is True


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda x: x + (x == 2), 'have the ids 0, 1, 3, 255, and 3 classes have names'),
        (lambda x: x * 0 + 255 * (x > 0), 'masks of 0 and 255 need 1 in place of 255'),
    ],
)
def test_wrong_labels(folder, new_config, change, message):
    relabel(folder, lambda x: change(x).astype(np.uint8))
    assert message in new_config(*SEG, fails=True).stderr
    assert not [*folder.glob('my*')]  # lists, too
    done = new_config('--labels', 'label', '--classes', 'classes.txt', fails=True)
    assert done.stderr == 'NotADirectoryError: There is no folder label.\n'


@pytest.mark.parametrize('like', ['maskrcnn_xcit_t12_p16_3x_coco', BOXES])
def test_boxes(folder, new_config, like):
    files = sorted(x.relative_to(folder / 'images') for x in (folder / 'images').rglob('*.jpg'))
    objects = [
        dict(id=i, image_id=i, category_id=7 + i % 3, bbox=[0, 0, 99, 60], area=5940, iscrowd=0)
        for i in range(10)
    ]

    def size(file):
        return dict(zip(('width', 'height'), Image.open(Path('images', file)).size, strict=True))

    names = 'cup', 'cat', 'car', 'cow'  # the last one never occurs
    content = dict(
        images=[dict(id=i, file_name=str(x), **size(x)) for i, x in enumerate(files)],
        annotations=objects,
        categories=[dict(id=7 + i, name=name) for i, name in enumerate(names)],
    )
    file = folder / 'all.json'
    file.write_text(json.dumps(content))
    if like != BOXES:
        done = new_config('--annotations', file, like=like, fails=True)
        assert f'9 objects of {file} have no segmentation' in done.stderr
        for x in objects:
            x['segmentation'] = [[0, 0, 99, 0, 99, 60, 0, 60]]
        file.write_text(json.dumps(content))
    (folder / 'two.txt').write_text('car\ncup\ncow\n')
    done = new_config('--annotations', file, '--classes', 'two.txt', like=like)
    cfg = Config.fromfile('my.py')
    assert cfg.classes == ['cup', 'car', 'cow']  # in the order of the file
    init_default_scope('mmdet')
    train, val = (DATASETS.build(cfg[f'{split}_dataloader'].dataset) for split in ('train', 'val'))
    objects = [label for data in infos(train) for label in data['instances']]
    assert f'cup              {sum(x["bbox_label"] == 0 for x in objects)} objects' in done.stdout
    assert '  cow              0 objects   never' in done.stdout
    assert len(val) == 1
    small = changed(r'scale = \(.*?\)', 'scale = (400, 240)')
    parts = [DATASETS.build(x.val_dataloader.dataset) for x in (cfg, small)]
    sides = [sorted(data['inputs'].shape[1:]) for (data,) in parts]
    assert sides == [[667, 1333], [200, 400]]
    for data in DATASETS.build(small.train_dataloader.dataset):
        short, long = sorted(data['inputs'].shape[1:])
        assert (short <= 240, 100 < long <= 400) == (True, True)
    found = rates(changed(r'epochs = \d+', 'epochs = 12'), 5)
    assert [found[i] for i in (3, 39, 40, 55, 59)] == pytest.approx([1, 1, 0.1, 0.01, 0.01])
    heads = [cfg.model.bbox_head] if like == BOXES else [*map(cfg.model.roi_head.get, HEADS)]
    assert {head.num_classes for head in heads} == {3}
    assert cfg.default_hooks.logger.interval == 1  # of at most 5 iterations an epoch


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Twenty images of two classes, and four of a third."""
    monkeypatch.chdir(tmp_path)
    for name, count in (('big car', 20), ('cat', 20), ('tree', 4)):
        for i in range(count):
            file = tmp_path / 'images' / name / f'{i % 2}/{i}.{("jpg", "PNG", "webp")[i % 3]}'
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new('RGB', (40, 30)).save(file)
    return tmp_path


@pytest.mark.parametrize('like', ['xcit_t12_p16_in1k', 'bixt_ti_l64_p16_in1k', 'bisa_swin_t_in1k'])
def test_folders_of_classes(photos, new_config, like):
    done = new_config('--split', 0.25, like=like)
    assert '33 images for training' in done.stdout
    cfg = Config.fromfile('my.py')
    init_default_scope('mmpretrain')
    import_module('mmpretrain.datasets')
    train, val = (DATASETS.build(cfg[f'{split}_dataloader'].dataset) for split in ('train', 'val'))
    assert [len(train), len(val)] == [33, 11]
    assert not {x['img_path'] for x in infos(train)} & {x['img_path'] for x in infos(val)}
    for data in (*infos(train), *infos(val)):
        assert f'images/{cfg.classes[data["gt_label"]]}/' in data['img_path']
    assert cfg.classes == ['big car', 'cat', 'tree']
    assert cfg.model.head.num_classes == cfg.data_preprocessor.num_classes == 3
    assert not cfg.train_dataloader.drop_last
    assert {tuple(data['inputs'].shape[1:]) for data in (train[0], val[0])} == {(224, 224)}
    small = changed(r'crop = \d+', 'crop = 96')
    train, val = (DATASETS.build(small[f'{x}_dataloader'].dataset) for x in ('train', 'val'))
    assert {tuple(data['inputs'].shape[1:]) for data in (train[0], val[0])} == {(96, 96)}
    for epochs in (100, 20, 8):  # of 3 steps
        found = rates(changed(r'epochs = \d+', f'epochs = {epochs}'), 3)
        assert len(found) == 3 * epochs
        assert found[0] == pytest.approx(0.001)
        assert max(found) > 0.95
        assert found[-1] < 0.02
    published = dict(type='Pretrained', checkpoint='xcit://tiny12-p16')
    if like.startswith('xcit'):
        assert cfg.model.backbone.init_cfg == cfg.model.neck.init_cfg == published
    assert cfg.optim_wrapper.optimizer.lr == (1e-3 if like.startswith('bisa') else 5e-5)
    if like.startswith('bixt'):
        assert cfg.model.head.loss.loss_weight == 1 / 3


def test_images_for_validation(photos, new_config, within):
    for name in ('cat', 'dog'):
        file = photos / 'other' / name / '1.jpg'
        file.parent.mkdir(parents=True)
        Image.new('RGB', (40, 30)).save(file)
    said = new_config('--val-images', 'other', like='xcit_t12_p16_in1k', fails=True).stderr
    assert "images has the classes ['big car', 'cat', 'tree'], other has ['cat', 'dog']" in said
    new_config('--val-images', 'images', like='xcit_t12_p16_in1k')
    Path('my_val.txt').write_text('cat/0/0.jpg 1')
    said = within('check_dataset.py', 'my.py', '--workers', 1, fails=True).stdout
    assert 'train: 44 images' in said  # those in WebP, too
    assert '  tree: no image has this class' in said

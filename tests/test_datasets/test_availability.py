import pytest
from mmengine.config import Config, ConfigDict

from mmbixt.datasets.availability import MissingDatasetError, check_datasets

ADE = dict(
    type='ADE20KDataset',
    data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
)
COCO = dict(
    type='CocoDataset',
    ann_file='annotations/instances_train2017.json',
    data_prefix=dict(img='images/training'),
)


@pytest.mark.parametrize(
    ('dataset', 'missing', 'help'),
    [
        (ADE, 'annotations/training', 'ADEChallengeData2016.zip'),
        (ADE | dict(type='CityscapesDataset'), 'annotations/training', ''),
        (COCO, 'annotations/instances_train2017.json', 'train2017.zip'),
        (COCO | dict(data_root='./'), 'annotations/instances_train2017.json', ''),
        (dict(type='RepeatDataset', dataset=COCO), COCO['ann_file'], 'train2017.zip'),
        (dict(type='ConcatDataset', datasets=[ADE, COCO]), 'annotations/training', 'ADEChall'),
    ],
)
def test_missing_files_are_named_with_advice(dataset, missing, help, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'images/training').mkdir(parents=True)
    cfg = Config(dict(train_dataloader=dict(dataset=dataset), val_dataloader=None))
    with pytest.raises(MissingDatasetError) as caught:
        check_datasets(cfg, ('train',))
    message = str(caught.value)
    assert f'\n  {tmp_path}/{missing}\n' in message
    assert 'images/training' not in message
    assert help in message
    assert ('--sample' in message) == bool(help)  # only for data sets with generated scenes
    check_datasets(cfg, ('val', 'test'))
    (tmp_path / 'annotations/training').mkdir(parents=True)
    (tmp_path / COCO['ann_file']).touch()
    check_datasets(cfg, ('train', 'val'))


def test_one_message_names_the_settings_of_all_splits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    several = dict(type='ConcatDataset', datasets=[COCO, ADE])
    repeated = dict(type='RepeatDataset', dataset=COCO)
    cfg = dict(train_dataloader=dict(dataset=several), val_dataloader=dict(dataset=repeated))
    (tmp_path / 'images/training').mkdir(parents=True)
    (tmp_path / 'annotations/training').mkdir(parents=True)
    with pytest.raises(MissingDatasetError) as caught:
        check_datasets(cfg, ('train', 'val'))
    message = str(caught.value)
    settings = 'train_dataloader.dataset.datasets.0.data_root and '
    settings += 'val_dataloader.dataset.dataset.data_root'
    assert f'set {settings}.' in message
    assert message.count(COCO['ann_file']) == message.count('train2017.zip') == 1


@pytest.mark.parametrize('prefix', [dict(split='train'), dict(data_prefix='train')])
def test_imagenet_has_a_split_or_a_prefix(tmp_path, prefix):
    cfg = ConfigDict(dataset=dict(type='ImageNet', data_root=str(tmp_path), **prefix))
    with pytest.raises(MissingDatasetError, match=rf'\n  {tmp_path}/train\n'):
        check_datasets(dict(train_dataloader=cfg), ('train',))
    (tmp_path / 'train').mkdir()
    check_datasets(dict(train_dataloader=cfg), ('train',))
    cfg.dataset.data_root = 'data/imagenet'  # that of our configs: where to get it
    with pytest.raises(MissingDatasetError, match=r'imagenet/train\n(.*\n)+.*image-net'):
        check_datasets(dict(train_dataloader=cfg), ('train',))


def test_only_imagenets_split_is_a_folder(tmp_path):
    cfg = ConfigDict(dataset=dict(type='CUB', data_root=str(tmp_path / 'cub'), split='train'))
    with pytest.raises(MissingDatasetError, match=r'\n  .*/cub\n'):
        check_datasets(dict(train_dataloader=cfg), ('train',))
    (tmp_path / 'cub').mkdir()
    check_datasets(dict(train_dataloader=cfg), ('train',))

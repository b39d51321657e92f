import pytest
from mmengine.config import Config

from mmbixt.datasets.availability import MissingDatasetError, check_datasets


def make_config(root, kind='ADE20KDataset'):
    dataset = dict(
        type=kind,
        data_root=str(root),
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
    )
    return Config(dict(train_dataloader=dict(dataset=dataset), val_dataloader=None))


def test_present(tmp_path):
    (tmp_path / 'images/training').mkdir(parents=True)
    (tmp_path / 'annotations/training').mkdir(parents=True)
    check_datasets(make_config(tmp_path), ('train', 'val'))


def test_absent_part_is_named_with_the_way_to_get_it(tmp_path):
    (tmp_path / 'images/training').mkdir(parents=True)
    with pytest.raises(MissingDatasetError) as caught:
        check_datasets(make_config(tmp_path), ('train',))
    message = str(caught.value)
    assert f'\n  {tmp_path}/annotations/training\n' in message
    assert 'images/training' not in message
    assert 'ADEChallengeData2016.zip' in message
    assert '--sample' in message


def test_other_splits_are_not_asked_for(tmp_path):
    check_datasets(make_config(tmp_path / 'nowhere'), ('test',))


def test_looks_inside_wrappers(tmp_path):
    inner = make_config(tmp_path, 'CocoDataset').train_dataloader.dataset
    for wrapped in (
        dict(type='RepeatDataset', dataset=inner),
        dict(type='ConcatDataset', datasets=[inner]),
    ):
        cfg = Config(dict(train_dataloader=dict(dataset=wrapped)))
        with pytest.raises(MissingDatasetError, match=r'train2017\.zip'):
            check_datasets(cfg, ('train',))


def test_annotation_file_of_coco(tmp_path):
    (tmp_path / 'train2017').mkdir()
    dataset = dict(
        type='CocoDataset',
        data_root=f'{tmp_path}/',
        ann_file='annotations/instances_train2017.json',
        data_prefix=dict(img='train2017/'),
    )
    with pytest.raises(MissingDatasetError, match=r'annotations/instances_train2017\.json'):
        check_datasets(Config(dict(train_dataloader=dict(dataset=dataset))), ('train',))


@pytest.mark.parametrize('prefix', [dict(split='train'), dict(data_prefix='train')])
def test_imagenet_has_a_split_or_a_prefix(tmp_path, prefix):
    cfg = Config(dict(dataset=dict(type='ImageNet', data_root=str(tmp_path), **prefix)))
    with pytest.raises(MissingDatasetError, match=rf'\n  {tmp_path}/train\n(.*\n)+.*image-net'):
        check_datasets(dict(train_dataloader=cfg), ('train',))
    (tmp_path / 'train').mkdir()
    check_datasets(dict(train_dataloader=cfg), ('train',))


def test_remote_data_are_not_looked_for():
    cfg = make_config('s3://bucket/ade')
    check_datasets(cfg, ('train',))


def test_sample_is_offered_only_where_there_are_scenes(tmp_path):
    with pytest.raises(MissingDatasetError) as caught:
        check_datasets(make_config(tmp_path, 'CityscapesDataset'), ('train',))
    assert '--sample' not in str(caught.value)

"""The published files' forms, transforms, and generated shapes."""

import json

import h5py
import numpy as np
import pytest
from mmengine.registry import DATASETS, TRANSFORMS

from mmbixt.config import read_config
from mmbixt.scenes.short_runs import use_scenes
from projects.points.datasets import CATEGORIES, PARTS
from projects.points.sample import COUNTS, SEEDS, make_shape

MODELNET, SHAPENET = (dict(type=f'mmbixt.{name}') for name in ('ModelNet40', 'ShapeNetPart'))


def rows(count, columns):
    return np.random.rand(count, columns).astype(np.float32).round(6)


def test_modelnet40_text(tmp_path):
    (tmp_path / 'modelnet40_shape_names.txt').write_text('airplane\nnight_stand\n')
    (tmp_path / 'modelnet40_train.txt').write_text('night_stand_0001\nairplane_0002\n')
    written = rows(9, 6)
    (tmp_path / 'night_stand').mkdir()
    np.savetxt(tmp_path / 'night_stand/night_stand_0001.txt', written, '%.6f', ',')
    cfg = dict(MODELNET, data_root=str(tmp_path), split='train')
    dataset = DATASETS.build(dict(cfg, normals=True))
    assert len(dataset) == 2
    np.testing.assert_allclose(dataset[0]['points'], written)
    assert dataset[0]['label'] == 1
    few = DATASETS.build(dict(cfg, num_points=4))
    np.testing.assert_allclose(few[0]['points'], written[:4, :3])


def write_shapenet(root):
    lines = ['Airplane\t02691156', 'Table\t04379243']
    (root / 'synsetoffset2category.txt').write_text('\n'.join(lines))
    written = np.hstack((rows(5, 6), [[47], [47], [48], [49], [49]]))
    (root / '04379243').mkdir()
    np.savetxt(root / '04379243/a1.txt', written, '%.6f')
    (root / 'train_test_split').mkdir()
    lists = dict(train=['shape_data/04379243/a1'], val=['shape_data/02691156/b'])
    for split, paths in lists.items():
        file = root / f'train_test_split/shuffled_{split}_file_list.json'
        file.write_text(json.dumps(paths))
    return written


def test_shapenetpart_text(tmp_path):
    written = write_shapenet(tmp_path)
    cfg = dict(SHAPENET, data_root=str(tmp_path), split='trainval', normals=True)
    dataset = DATASETS.build(cfg)
    assert [dataset.get_data_info(0)['category'], len(dataset)] == [15, 2]
    np.testing.assert_allclose(dataset[0]['points'], written[:, :6], rtol=1e-6)
    assert dataset[0]['parts'].tolist() == [47, 47, 48, 49, 49]
    assert dataset.metainfo['parts'][15] == (47, 48, 49)


def test_hdf5(tmp_path):
    points = rows(2 * 6, 3).reshape(2, 6, 3)
    with h5py.File(tmp_path / 'ply_data_train0.h5', 'w') as file:
        file.update(data=points, label=np.uint8([[3], [15]]), pid=np.uint8([[8] * 6, [47] * 6]))
    (tmp_path / 'train_files.txt').write_text('data/elsewhere/ply_data_train0.h5\n')
    (tmp_path / 'train_hdf5_file_list.txt').write_text('ply_data_train0.h5\n')
    options = dict(data_root=str(tmp_path), split='train', form='hdf5', num_points=4)
    classes, parts = (DATASETS.build(dict(cfg, **options)) for cfg in (MODELNET, SHAPENET))
    assert [classes[i]['label'] for i in range(2)] == [3, 15]
    np.testing.assert_array_equal(classes[1]['points'], points[1, :4])
    assert (parts[0]['category'], parts[0]['parts'].tolist()) == (3, [8] * 4)
    with pytest.raises(ValueError, match=r"normals=True needs form='text'"):
        DATASETS.build(dict(MODELNET, normals=True, **options))


def apply(name, points, **options):
    shape = dict(points=points, parts=np.arange(len(points)), label=3)
    return TRANSFORMS.build(dict(type=f'mmbixt.{name}', **options))(shape)


def test_transforms():
    points = rows(50, 6)
    first = apply('SamplePoints', points, num_points=7, random=False)
    assert first['parts'].tolist() == [*range(7)]
    more = apply('SamplePoints', points, num_points=60, random=True)
    assert set(more['parts']) == set(range(50))
    np.testing.assert_array_equal(more['points'], points[more['parts']])
    unit = apply('UnitSphere', points)['points']
    np.testing.assert_allclose(unit[:, :3].mean(0), 0, atol=1e-6)
    assert np.linalg.norm(unit[:, :3], axis=1).max() == pytest.approx(1)
    moved = apply('ScaleAndShift', points)['points']
    slopes = (moved - moved[0])[1:, :3] / (points - points[0])[1:, :3]
    np.testing.assert_allclose(slopes, slopes[:1].repeat(49, 0), rtol=1e-2)
    for changed in (unit, moved):
        np.testing.assert_array_equal(changed[:, 3:], points[:, 3:])
    dropped = apply('DropPoints', points)
    kept = dropped['parts'] == np.arange(50)
    assert 0 < kept.sum() < 50
    assert not dropped['parts'][~kept].any()
    np.testing.assert_array_equal(dropped['points'], points[dropped['parts']])
    packed = apply('PackPoints', points, keys=['label'])
    assert {key: x.dtype for key, x in packed.items()} == dict(points=np.float32, label=np.int64)


def test_numbers_of_parts():
    assert len(CATEGORIES) == 16
    assert [part for parts in PARTS for part in parts] == list(range(50))


def test_generated_shapes():
    for seed in range(3):
        shape = make_shape(seed, 500)
        assert set(shape['parts']) == set(PARTS[shape['category']])
        np.testing.assert_allclose(np.linalg.norm(shape['points'][:, 3:], axis=1), 1, rtol=1e-5)
        np.testing.assert_array_equal(shape['points'], make_shape(seed, 500)['points'])
    assert SEEDS['trainval'] + COUNTS['trainval'] <= SEEDS['test']


def test_sample():
    cfg = read_config('modelnet40_bixt_ti_naive')
    assert use_scenes(cfg)[0] == 'data: generated by mmbixt.SampleShapes'
    dataset = cfg.train_dataloader.dataset
    assert (dataset.type, dataset.split) == ('mmbixt.SampleShapes', 'train')
    assert 'data_root' not in dataset
    assert {dataset.num_points, dataset.pipeline[0].num_points} == {256}
    assert cfg.optim_wrapper.optimizer.lr == 0.1 * 8 / 32

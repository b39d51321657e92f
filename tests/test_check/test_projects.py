"""Configs with classes of a project, which stock runners train, are not refused."""

import copy

import cv2
import numpy as np
import pytest
import torch
from checking import STEPS, found
from mmengine.config import ConfigDict
from mmengine.runner import IterBasedTrainLoop
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.models import EncoderDecoder
from torch import nn

from mmbixt.datasets.availability import annotation_file, check_datasets, leaves


class Load16(LoadAnnotations):
    """Class x 256 + instance."""

    def _load_seg_map(self, results):
        labels = cv2.imread(results['seg_map_path'], cv2.IMREAD_UNCHANGED)
        results['gt_seg_map'] = labels.astype(np.int64) // 256
        results['seg_fields'].append('gt_seg_map')


class LoadMany(LoadAnnotations):
    """One channel for each class."""

    def _load_seg_map(self, results):
        super()._load_seg_map(results)
        results['gt_seg_map'] = np.stack([results['gt_seg_map'] == i for i in range(3)], -1)


class LoadHalf(LoadAnnotations):
    def _load_seg_map(self, results):
        super()._load_seg_map(results)
        results['gt_seg_map'] = results['gt_seg_map'][::2, ::2]


class FillGaps:
    def __call__(self, results):
        results['img'] = np.nan_to_num(results['img'])
        return results


class FromRGBD(EncoderDecoder):
    def extract_feat(self, inputs):
        return super().extract_feat(inputs[:, :3])


class AddDepth:
    def __call__(self, results):
        results['img'] = np.concatenate([results['img'], results['img'][..., :1]], -1)
        return results


class WithNumbers(nn.Module):
    """Reads numbers when it is built."""

    def __init__(self):
        super().__init__()
        self.rates = torch.linspace(0, 1, 4).numpy()

    def forward(self, maps):
        return maps


class Weather(nn.Module):
    num_classes = 7


class WithWeather(EncoderDecoder):
    def __init__(self, **options):
        super().__init__(**options)
        self.weather_head = Weather()


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return dict(image=torch.zeros(3, 64, 64))


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield dict(inputs=torch.zeros(3, 64, 64))


class Loop(IterBasedTrainLoop):
    def __init__(self, runner, dataloader, max_epochs):
        super().__init__(runner, dataloader, max_epochs * 10)


def own_loader(kind):
    return [STEPS[0], dict(type=kind), *STEPS[2:]]


def write(root, values, folder):
    for path in (root / folder).iterdir():
        path.write_bytes(cv2.imencode('.png' if folder == 'labels' else '.tiff', values)[1])


def test_labels_of_16_bits(cfg, root):
    write(root, np.full((64, 80), 2 * 256 + 77, np.uint16), 'labels')
    cfg.train_dataloader.dataset.pipeline = own_loader(Load16)
    assert found(cfg, ('train',)) == ([], [])
    write(root, np.full((64, 80), 30_000, np.uint16), 'labels')
    assert 'has the ids 117 (5,120' in found(cfg, ('train',))[0][0]


@pytest.mark.parametrize('kind', [LoadMany, LoadHalf])
def test_labels_of_other_forms(cfg, kind):
    cfg.train_dataloader.dataset.pipeline = own_loader(kind)[:2] + STEPS[3:]
    assert found(cfg, ('train',)) == ([], [])


def test_pixels_that_a_transform_fills(cfg, root):
    write(root, np.full((64, 80, 3), np.nan, np.float32), 'images')
    load = dict(STEPS[0], color_type='unchanged')
    cfg.train_dataloader.dataset.pipeline = [load, *STEPS[1:]]
    assert 'values that are NaN' in found(cfg, ('train',))[0][0]
    nested = dict(type='RandomApply', transforms=[dict(type=FillGaps)], prob=1)
    for fill in (dict(type=FillGaps), nested):
        cfg.train_dataloader.dataset.pipeline = [load, fill, *STEPS[1:]]
        assert found(cfg, ('train',)) == ([], [])


def test_other_inputs_of_the_backbone(cfg):
    cfg.train_dataloader.dataset.pipeline = [STEPS[0], dict(type=AddDepth), *STEPS[1:]]
    cfg.model.data_preprocessor = dict(type='SegDataPreProcessor', size=(64, 64))
    assert 'in_channels = 3' in found(cfg, ('train',))[0][0]
    cfg.model.type = FromRGBD
    assert found(cfg, ('train',)) == ([], [])


@pytest.mark.parametrize(
    'change',
    [
        {'model.type': WithWeather},
        {'model.neck': dict(type=WithNumbers)},
        {'train_cfg': dict(_delete_=True, type=Loop, max_epochs=3)},
        {'train_dataloader.dataset': dict(_delete_=True, type=Images)},
        {'train_dataloader.dataset': dict(_delete_=True, type=Stream)},
    ],
)
def test_parts_of_a_project(cfg, change):
    cfg.param_scheduler = []
    if 'model.neck' in change:
        change = {'model.neck': [cfg.model.neck, change['model.neck']]}
    if 'train_dataloader.dataset' in change:
        cfg.model.type = FromRGBD
    cfg.merge_from_dict(change)
    assert found(cfg, ('train',))[0] == []


def test_several_data_loaders_of_a_loop(cfg):
    loader = copy.deepcopy(cfg.train_dataloader)
    cfg.train_dataloader = dict(labelled=loader, unlabelled=loader)
    assert 'train_dataloader.dataset has' in found(cfg)[0][0]
    cfg.train_cfg = cfg.val_cfg = dict(type=Loop, max_epochs=3)
    cfg.val_dataloader, cfg.param_scheduler = [loader, loader], []
    assert found(cfg)[0] == []


@pytest.mark.parametrize(
    'dataset',
    [
        dict(type='Mine', split='fold0'),
        dict(type='mmpretrain.CUB', split='train'),
        dict(type='Mine', ann_file=['a.txt', 'b.txt']),
        dict(type='Mine', datasets=['a', 'b']),
        dict(type='Mine', dataset='a'),
        dict(type='Mine', data_prefix=dict(img='http://127.0.0.1/')),
    ],
)
def test_arguments_of_other_meanings(dataset):
    cfg = ConfigDict(train_dataloader=dict(dataset=dataset))
    check_datasets(cfg, ('train',))
    assert [*leaves(dataset)] == [dataset]
    assert str(annotation_file(dataset)) == '.'

"""Pictures of errors near boundaries, from the runs of a runner."""

import re
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.model import BaseModel
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, PixelData
from torch.utils.data import Dataset

import mmbixt.engine.boundary_vis_hook as module
from mmbixt.engine import BoundaryVisHook
from mmbixt.visualization.boundary_errors import Pixel, error_map

DOCS = Path(__file__).parents[2] / 'docs/boundary.md'


class Images(Dataset):
    """Samples with files and true labels, of which no two are alike."""

    metainfo = dict(classes=('sky', 'tree', 'car'), palette=[(0, 0, 255), (0, 99, 0), (99, 0, 0)])

    def __init__(self, folder, count=5, labelled=True):
        self.samples = []
        rng = np.random.default_rng(0)
        for i in range(count):
            path = folder / f'image_{i}.png'
            cv2.imwrite(str(path), np.full((24, 32, 3), (200, 10 * i, 0), np.uint8))
            sample = BaseDataElement(metainfo=dict(img_path=str(path)))
            if labelled:
                labels = rng.integers(0, 3, (4, 4)).repeat(6, 0).repeat(8, 1)
                sample.gt_sem_seg = PixelData(data=torch.from_numpy(labels)[None])
            self.samples.append(sample)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return dict(inputs=torch.zeros(1), data_samples=self.samples[i])


class Model(BaseModel):
    """Predicts the first class everywhere."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs, data_samples=None, mode='predict'):
        if mode == 'loss':
            return dict(loss=self.weight.sum())
        for sample in data_samples:
            sample.pred_sem_seg = PixelData(data=torch.zeros((1, 24, 32), dtype=torch.long))
        return data_samples


def make_runner(folder, dataset, hook=None, batch_size=2, backends=('LocalVisBackend',), **more):
    loader = make_loader(dataset, 'DefaultSampler', batch_size)
    metric = dict(type='mmbixt.BoundaryIoUMetric', widths=(3,))
    return Runner(
        Model(),
        work_dir=str(folder / 'run'),
        val_dataloader=loader,
        val_cfg=dict(),
        val_evaluator=metric,
        test_dataloader=loader,
        test_cfg=dict(),
        test_evaluator=metric,
        custom_hooks=[dict(type='mmbixt.BoundaryVisHook', **(hook or {}))],
        visualizer=dict(type='Visualizer', vis_backends=[dict(type=name) for name in backends]),
        default_hooks=dict(logger=dict(type='LoggerHook', log_metric_by_epoch=False)),
        log_processor=dict(by_epoch=False),
        experiment_name=f'{folder.name}_{len(more)}',
        **more,
    )


def make_loader(dataset, sampler, batch_size):
    sampler = dict(type=sampler, shuffle=False)
    return dict(dataset=dataset, sampler=sampler, collate_fn=pseudo_collate, batch_size=batch_size)


def training(dataset):
    return dict(
        train_dataloader=make_loader(dataset, 'InfiniteSampler', 1),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=4, val_interval=2),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
    )


def pictures(folder):
    return sorted(path.name for path in folder.rglob('vis_image/*'))


@pytest.mark.parametrize(
    ('options', 'batch_size', 'drawn'),
    [
        (dict(interval=3), 1, [0, 3]),
        (dict(interval=3), 2, [0, 3]),
        (dict(interval=1, max_images=2), 5, [0, 1]),
        (dict(draw=False), 2, []),
    ],
)
def test_which_are_drawn(tmp_path, options, batch_size, drawn):
    runner = make_runner(tmp_path, Images(tmp_path), options, batch_size)
    runner.test()
    names = [f'test_boundary_image_{i}_0.png' for i in drawn]
    assert pictures(tmp_path) == names
    if batch_size == 2:
        runner.val()  # anew, from the first
        assert pictures(tmp_path) == names + [name.replace('test', 'val') for name in names]


def test_evaluation_alone_does_not_build_the_training(tmp_path, monkeypatch):
    runner = make_runner(tmp_path, Images(tmp_path), **training(dict(type='Nowhere')))
    with monkeypatch.context() as patch:  # of several processes, one draws
        patch.setattr(module, 'is_main_process', lambda: False)
        runner.test()
    assert pictures(tmp_path) == []
    runner.test()
    assert pictures(tmp_path) == ['test_boundary_image_0_0.png']


def test_training_sends_pictures_and_scores_to_all_backends(tmp_path):
    tensorboard = find_spec('tensorboard') is not None
    backends = ['LocalVisBackend'] + ['TensorboardVisBackend'] * tensorboard
    dataset = Images(tmp_path, 3)
    runner = make_runner(
        tmp_path, dataset, dict(interval=2), backends=backends, **training(dataset)
    )
    runner.train()
    names = [f'val_boundary_image_{i}' for i in (0, 2)]
    assert pictures(tmp_path) == [f'{name}_{step}.png' for name in names for step in (2, 4)]
    if tensorboard:
        from tensorboard.backend.event_processing import event_accumulator

        events = event_accumulator.EventAccumulator(str(next(tmp_path.rglob('events.*'))))
        events.Reload()
        assert events.Tags()['images'] == names
        assert [image.step for image in events.Images(names[1])] == [2, 4]
        assert [score.step for score in events.Scalars('band3px/mIoU')] == [2, 4]


def test_picture_is_of_the_file_and_its_labels(tmp_path):
    dataset = Images(tmp_path)
    sample = Model().forward(None, [dataset[3]['data_samples']])[0]
    figure = module.sample_figure(sample, Images.metainfo, 'title', width=1)
    image, truth, prediction, errors = (ax.get_images()[0].get_array() for ax in figure.axes[:4])
    assert (image == (0, 30, 200)).all()
    labels = sample.gt_sem_seg.data[0].numpy()
    np.testing.assert_array_equal(truth, np.array(Images.metainfo['palette'])[labels])
    assert (prediction == (0, 0, 255)).all()
    wrong = error_map(labels, np.zeros((24, 32), int), 1) >= Pixel.MISSED
    assert wrong.any()
    assert ((errors[..., 0] != errors[..., 2]) == wrong).all()  # in colour, all else is grey


def test_missing_labels_and_files_that_are_no_images_are_explained(tmp_path):
    for labelled, message in (
        (False, r'no gt_sem_seg of .*image_2\.png: the dataset has'),
        (True, r'no pred_sem_seg of image .*are for segmentors'),
    ):
        sample = Images(tmp_path, labelled=labelled)[2]['data_samples']
        with pytest.raises(ValueError, match=message):
            module.sample_figure(sample, Images.metainfo, 'title')
    (tmp_path / 'x.png').write_text('no picture')
    with pytest.raises(ValueError, match=r'x\.png is not an image'):
        module.read_image(str(tmp_path / 'x.png'))


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match='interval=0 and max_images=10 must be at least 1'):
        BoundaryVisHook(interval=0)
    with pytest.raises(ValueError, match='widths are pixels'):
        BoundaryVisHook(width=1.5)


def test_config_in_the_docs():
    (snippet,) = re.findall(r'```python\n(custom_hooks .*?)```', DOCS.read_text(), re.DOTALL)
    (hook,) = Config.fromstring(snippet, '.py').custom_hooks
    assert isinstance(HOOKS.build(hook), BoundaryVisHook)

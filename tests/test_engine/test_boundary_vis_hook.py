"""Pictures of errors near boundaries, drawn by a hook of a runner."""

import cv2
import numpy as np
import torch
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, PixelData
from running import FirstClass, fresh_mmengine, make_loader

from mmbixt.visualization.samples import sample_figure


class Images(list):
    """A data set of image files with label maps, all different."""

    metainfo = dict(classes=('sky', 'tree', 'car'), palette=[(0, 0, 255), (0, 99, 0), (99, 0, 0)])

    def __init__(self, folder):
        rng = np.random.default_rng(0)
        for i in range(5):
            path = folder / f'image_{i}.png'
            cv2.imwrite(str(path), np.full((24, 32, 3), (200, 10 * i, 0), np.uint8))
            sample = BaseDataElement(metainfo=dict(img_path=str(path)))
            labels = rng.integers(0, 3, (4, 4)).repeat(6, 0).repeat(8, 1)
            sample.gt_sem_seg = PixelData(data=torch.from_numpy(labels)[None])
            self.append(dict(inputs=torch.zeros(1), data_samples=sample))


def make_runner(folder, dataset, **options):
    loader = make_loader(dataset, 'DefaultSampler', 2)
    metric = dict(type='mmbixt.BoundaryIoUMetric', widths=(3,))
    for split in ('val', 'test'):
        options |= {f'{split}_dataloader': loader, f'{split}_cfg': {}, f'{split}_evaluator': metric}
    return Runner(
        FirstClass(),
        str(folder / 'run'),
        custom_hooks=[dict(type='mmbixt.BoundaryVisHook', interval=2, max_images=2)],
        visualizer=dict(type='Visualizer', vis_backends=[dict(type='LocalVisBackend')]),
        default_hooks=dict(logger=dict(type='LoggerHook', log_metric_by_epoch=False)),
        log_processor=dict(by_epoch=False),
        **options,
    )


def test_names_of_pictures(tmp_path):
    """Every second image, two at most, in each evaluation; with the iteration of a training."""
    dataset = Images(tmp_path)
    training = dict(
        train_dataloader=make_loader(dataset, 'InfiniteSampler', 1),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=4, val_interval=2),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
    )
    with fresh_mmengine():
        make_runner(tmp_path, dataset).test()
    with fresh_mmengine():
        make_runner(tmp_path, dataset, **training).train()
    names = ['test_boundary_image_0_0.png', 'test_boundary_image_2_0.png']
    names += [f'val_boundary_image_{i}_{step}.png' for i in (0, 2) for step in (2, 4)]
    assert sorted(path.name for path in tmp_path.rglob('vis_image/*')) == names


def test_picture_is_of_the_file_and_its_labels(tmp_path):
    dataset = Images(tmp_path)
    sample = FirstClass().forward(None, [dataset[3]['data_samples']])[0]
    figure = sample_figure(sample, Images.metainfo, 'title', width=1)
    image, truth, prediction, _ = (ax.get_images()[0].get_array() for ax in figure.axes[:4])
    assert (image == (0, 30, 200)).all()
    labels = sample.gt_sem_seg.data[0].numpy()
    np.testing.assert_array_equal(truth, np.array(Images.metainfo['palette'])[labels])
    assert (prediction == (0, 0, 255)).all()

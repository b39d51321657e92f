"""A loss that is not finite stops a run, and no bad checkpoint is written."""

import pytest
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from running import fresh_mmengine, make_loader

from mmbixt.checkpoints.loader import load


class Model(BaseModel):
    """The loss is weight * sum of the images."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs, data_samples, mode):
        return dict(loss=self.weight.sum() * torch.stack(inputs).sum())


def make_runner(folder, values):
    samples = [BaseDataElement(metainfo=dict(img_path=f'{i}.jpg')) for i in range(len(values))]
    dataset = [
        dict(inputs=torch.tensor(value), data_samples=sample)
        for value, sample in zip(values, samples, strict=True)
    ]
    with fresh_mmengine():
        return Runner(
            Model(),
            str(folder),
            train_dataloader=make_loader(dataset, 'DefaultSampler', 1),
            train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=1),
            optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
            default_hooks=dict(
                checkpoint=dict(type='CheckpointHook', interval=1, by_epoch=False),
                finite_loss=dict(type='mmbixt.FiniteLossHook'),
            ),
        )


def test_a_bad_loss_names_the_images(tmp_path):
    runner = make_runner(tmp_path, [1.0, 2.0, float('inf'), 1.0])
    with pytest.raises(FloatingPointError) as info:
        runner.train()
    assert str(info.value) == 'The loss is inf in iteration 3, for the images\n  2.jpg'
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['iter_1.pth', 'iter_2.pth']
    weight = load(str(tmp_path / 'iter_2.pth'))['state_dict']['weight']
    assert weight.item() == pytest.approx(1 - 0.1 - 0.2)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    """The loss was finite, its gradients were not, in the last iteration."""
    runner = make_runner(tmp_path, [1.0] * 4)
    weight = runner.model.weight
    weight.register_hook(lambda grad: grad * float('nan') if runner.iter == 3 else grad)
    with pytest.raises(FloatingPointError, match='Weights are not finite'):
        runner.train()
    assert len([*tmp_path.glob('*.pth')]) == 3

"""A loss that is not finite never gets into the weights."""

import pytest
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from running import fresh_mmengine, make_loader

from mmbixt.checkpoints.loader import load


class Model(BaseModel):
    """Its loss is what the images say, times the weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs, data_samples, mode):
        return dict(loss=self.weight.sum() * torch.stack(inputs).sum())


def dataset(values):
    names = [BaseDataElement(metainfo=dict(img_path=f'{i}.jpg')) for i in range(len(values))]
    return [
        dict(inputs=torch.tensor(value), data_samples=name)
        for value, name in zip(values, names, strict=True)
    ]


def make_runner(folder, values, accumulative_counts=1, **options):
    loader = make_loader(dataset(values), 'DefaultSampler', 1)
    wrapper = dict(accumulative_counts=accumulative_counts, optimizer=dict(type='SGD', lr=0.1))
    with fresh_mmengine():
        return Runner(
            Model(),
            str(folder),
            train_dataloader=loader,
            train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=1),
            optim_wrapper=wrapper,
            default_hooks=dict(
                checkpoint=dict(type='CheckpointHook', interval=1, by_epoch=False),
                logger=dict(type='LoggerHook', interval=1),
                finite_loss=dict(type='mmbixt.FiniteLossHook', **options),
            ),
        )


@pytest.mark.parametrize('bad', [float('nan'), float('inf')])
def test_stops_before_the_step(tmp_path, bad):
    runner = make_runner(tmp_path, [1.0, 2.0, bad, 1.0])
    with pytest.raises(FloatingPointError) as info:
        runner.train()
    path = tmp_path / 'iter_2.pth'
    assert f'The loss is {bad} in iteration 3, for the images\n  2.jpg\n' in str(info.value)
    assert 'All weights are finite' in str(info.value)
    assert f'The last good checkpoint is {path}; --resume {path} goes on' in str(info.value)
    assert runner.model.weight.item() == pytest.approx(1 - 0.1 - 0.2)
    assert load(str(path))['state_dict']['weight'] == runner.model.weight


def test_a_gradient_that_was_not_finite_is_told_from_images(tmp_path):
    """The checkpoint after it is not a good one."""
    runner = make_runner(tmp_path, [1.0, 2.0, 1.0, 1.0])
    weight = runner.model.weight
    weight.register_hook(lambda grad: grad * float('nan') if runner.iter == 1 else grad)
    with pytest.raises(FloatingPointError, match='iteration 3') as info:
        runner.train()
    assert 'Weights are not finite: a gradient before was not.' in str(info.value)
    assert f'The last good checkpoint is {tmp_path}/iter_1.pth' in str(info.value)


@pytest.mark.parametrize(('accumulative_counts', 'expected'), [(1, 1 - 0.1 - 0.4), (2, 1 - 0.25)])
def test_batches_are_passed_over(tmp_path, accumulative_counts, expected):
    """Of two that are accumulated the other one counts."""
    values = [1.0, float('nan'), float('inf'), 4.0]
    runner = make_runner(tmp_path, values, accumulative_counts, on_bad='skip', max_skipped=2)
    runner.train()
    assert runner.model.weight.item() == pytest.approx(expected)
    (log,) = tmp_path.glob('*/*.log')
    text = log.read_text()
    assert 'The loss is inf in iteration 3, for the images\n  2.jpg\nBatch passed over (2' in text
    assert 'loss: nan' not in text


def test_too_many_are_an_error(tmp_path):
    runner = make_runner(tmp_path, [float('nan')] * 3, on_bad='skip', max_skipped=2)
    with pytest.raises(FloatingPointError, match='2 batches were passed over before') as info:
        runner.train()
    assert 'The last good checkpoint' in str(info.value)

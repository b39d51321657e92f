"""A loss that is not finite never changes the weights."""

import pytest
import torch
from mmengine.model import BaseModel, MMDistributedDataParallel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from running import fresh_mmengine, make_loader

from mmbixt.checkpoints.loader import load


class Model(BaseModel):
    """The loss is weight * sum of the images; their running mean is a buffer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.register_buffer('mean', torch.zeros(()))

    def forward(self, inputs, data_samples, mode):
        self.mean.lerp_(torch.stack(inputs).mean(), 0.5)
        return dict(loss=self.weight.sum() * torch.stack(inputs).sum())


def dataset(values):
    names = [BaseDataElement(metainfo=dict(img_path=f'{i}.jpg')) for i in range(len(values))]
    return [
        dict(inputs=torch.tensor(value), data_samples=name)
        for value, name in zip(values, names, strict=True)
    ]


def make_runner(folder, values, accumulative_counts=1, interval=1, **options):
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
                checkpoint=dict(type='CheckpointHook', interval=interval, by_epoch=False),
                logger=dict(type='LoggerHook', interval=1),
                finite_loss=dict(type='mmbixt.FiniteLossHook', **options),
            ),
            custom_hooks=[dict(type='mmdet.CheckInvalidLossHook', interval=1)],
        )


@pytest.mark.parametrize('bad', [float('nan'), float('inf')])
def test_stops_before_the_step(tmp_path, bad):
    runner = make_runner(tmp_path, [1.0, 2.0, bad, 1.0])
    with pytest.raises(FloatingPointError) as info:
        runner.train()
    path = tmp_path / 'iter_2.pth'
    assert f'The loss is {bad} in iteration 3, for the images\n  2.jpg\n' in str(info.value)
    assert 'All weights are finite: the cause' in str(info.value)
    assert 'Buffers (such as running means) are not finite.' in str(info.value)
    assert f'resume from the last good checkpoint: --resume {path}.' in str(info.value)
    assert runner.model.weight.item() == pytest.approx(1 - 0.1 - 0.2)
    assert load(str(path))['state_dict']['weight'] == runner.model.weight


@pytest.mark.parametrize(
    ('interval', 'bad', 'message'),
    [
        (1, 3, 'No checkpoint is written. Weights are'),  # after the last iteration
        (3, 3, 'No checkpoint is written. Weights are'),
        (2, 2, 'iteration 4'),
    ],
)
def test_weights_that_are_not_finite_are_not_saved(tmp_path, interval, bad, message):
    """The loss was finite, its gradients were not: with on_bad='skip', too, the run stops."""
    runner = make_runner(tmp_path, [1.0] * 4, interval=interval, on_bad='skip')
    weight = runner.model.weight
    weight.register_hook(lambda grad: grad * float('nan') if runner.iter == bad else grad)
    with pytest.raises(FloatingPointError, match=message) as info:
        runner.train()
    good = max(x for x in range(interval, bad + 1, interval))
    assert 'Weights are not finite: an earlier gradient was not finite.' in str(info.value)
    assert f'last good checkpoint: --resume {tmp_path}/iter_{good}.pth' in str(info.value)
    assert not (tmp_path / f'iter_{bad + 1}.pth').exists()


@pytest.mark.parametrize(('accumulative_counts', 'expected'), [(1, 1 - 0.1 - 0.4), (2, 1 - 0.25)])
def test_batches_are_skipped(tmp_path, accumulative_counts, expected):
    """With accumulation the other batch of a step still counts."""
    values = [1.0, float('nan'), float('inf'), 4.0]
    runner = make_runner(tmp_path, values, accumulative_counts, on_bad='skip', max_skipped=2)
    runner.train()
    assert runner.model.weight.item() == pytest.approx(expected)
    assert runner.model.mean.item() == pytest.approx(2.25)  # of 0, 1 and 4
    (log,) = tmp_path.glob('*/*.log')
    text = log.read_text()
    assert 'The loss is inf in iteration 3, for the images\n  2.jpg\nBatch skipped (2' in text
    assert 'loss: nan' not in text


def test_too_many_skipped_batches_are_an_error(tmp_path):
    runner = make_runner(tmp_path, [float('nan')] * 3, on_bad='skip', max_skipped=2)
    with pytest.raises(FloatingPointError, match='max_skipped=2 batches were skipped before'):
        runner.train()


def test_files_that_are_no_checkpoints_are_ignored(tmp_path):
    (tmp_path / 'iter_8.pth').write_bytes(b'PK')
    torch.save(dict(a=1), tmp_path / 'iter_9.pth')
    runner = make_runner(tmp_path, [float('nan')])
    with pytest.raises(FloatingPointError, match=r'for the images\n  0.jpg\n.*No checkpoint with'):
        runner.train()


def train_one_of_two(rank, folder):
    """Train with a bad last batch of the first step on rank 0; write the weight to a file."""
    store = torch.distributed.FileStore(f'{folder}/store', 2)
    torch.distributed.init_process_group('gloo', store=store, rank=rank, world_size=2)
    nan = float('nan')
    values = [[1.0, nan, 1.0, 1.0], [2.0, 3.0, 1.0, 1.0]][rank]
    runner = make_runner(folder / str(rank), values, 2, on_bad='skip')
    runner.model = MMDistributedDataParallel(runner.model)
    # each process has its own images
    runner._train_dataloader['sampler'] = torch.utils.data.SequentialSampler(values)
    runner.train()
    torch.save(runner.model.module.weight.item(), folder / f'{rank}.pth')
    torch.distributed.destroy_process_group()


def test_processes_do_not_diverge(tmp_path):
    """No process makes a step with gradients that are not averaged."""
    start = torch.multiprocessing.start_processes
    start(train_one_of_two, (tmp_path,), nprocs=2, start_method='fork')
    assert [torch.load(tmp_path / f'{rank}.pth') for rank in (0, 1)] == pytest.approx([0.9, 0.9])

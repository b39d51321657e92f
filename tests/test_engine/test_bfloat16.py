"""Training in bfloat16 follows training in float32."""

import pytest
import torch
from helpers import others_in_zoo
from mmengine.hooks import Hook
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from mmengine.structures import PixelData
from running import fresh_mmengine, make_loader
from variants import FAMILIES

from mmbixt.ops import use_ops

STEPS, LR = 20, 0.01


class Losses(Hook):
    def __init__(self):
        self.losses = []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.losses.append(float(outputs['loss']))


def scenes():
    """Images whose colours are their classes, and noise."""
    from mmseg.structures import SegDataSample

    colours = torch.tensor([[200.0, 40, 40], [40, 200, 40], [40, 40, 200]])
    data = []
    for _ in range(8):
        labels = torch.randint(3, (2, 2)).repeat_interleave(32, 0).repeat_interleave(32, 1)
        image = colours[labels].permute(2, 0, 1) + 60 * torch.randn(3, 64, 64)
        sample = SegDataSample(gt_sem_seg=PixelData(data=labels[None]))
        sample.set_metainfo(dict(img_shape=(64, 64), ori_shape=(64, 64)))
        data.append(dict(inputs=image.clamp(0, 255).byte(), data_samples=sample))
    return data


def losses(folder, backbone, seed, wrapper, path):
    init_default_scope('mmseg')
    torch.manual_seed(seed)
    backbone = {**backbone, 'drop_path_rate': 0.0}
    width = MODELS.build(backbone).out_channels[-1]
    head = dict(
        type='FCNHead',
        in_channels=width,
        in_index=-1,
        channels=16,
        num_convs=1,
        num_classes=3,
        dropout_ratio=0,  # random numbers of bfloat16 are others
        norm_cfg=dict(type='BN'),
    )
    hook = Losses()
    with fresh_mmengine(), use_ops(path):
        torch.manual_seed(seed)
        runner = Runner(
            dict(
                type='EncoderDecoder',
                data_preprocessor=dict(
                    type='SegDataPreProcessor', mean=[127] * 3, std=[60] * 3, size=(64, 64)
                ),
                backbone=backbone,
                decode_head=head,
                test_cfg=dict(mode='whole'),
            ),
            str(folder),
            train_dataloader=make_loader(scenes(), 'InfiniteSampler', 4),
            train_cfg=dict(type='IterBasedTrainLoop', max_iters=STEPS),
            optim_wrapper=dict(type=wrapper, optimizer=dict(type='SGD', lr=LR, momentum=0.9)),
            default_hooks=dict(checkpoint=None, logger=None),
            custom_hooks=[hook],
            default_scope='mmseg',
            randomness=dict(seed=seed),
        )
        runner.train()
    return torch.tensor(hook.losses)


@pytest.mark.parametrize('family', others_in_zoo(FAMILIES, ['bisa']))
def test_twenty_steps_follow_float32(tmp_path, family):
    """On average no further from them than the plain order in bfloat16 is at worst."""
    half = 'mmbixt.BFloat16OptimWrapper'
    exact, plain, ours = (
        torch.stack([losses(tmp_path, FAMILIES[family], seed, *how) for seed in range(2)])
        for how in (('OptimWrapper', 'auto'), (half, 'reference'), (half, 'auto'))
    )
    assert exact.shape == (2, STEPS)
    far = (ours - exact).square().mean().sqrt()
    assert 0 < far <= (plain - exact).abs().max()
    assert far < (exact[:, 0] - exact[:, -1]).min() / 10

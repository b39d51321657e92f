"""Distillation: its losses, a teacher that no other part of a run sees, runs and resumed runs."""

import shutil

import pytest
import torch
from helpers import assert_close, image
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from mmpretrain.structures import DataSample
from running import fresh_mmengine, shorten, write_few_scenes

from mmbixt.checkpoints.loader import load
from mmbixt.config import read_config
from mmbixt.scenes.short_runs import use_scenes

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
MIXED = dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)])
# a small network of timm with random weights, whose images have a mean and std of 0.5
TEACHER = dict(model_name='test_resnet', num_classes=5)
HEADS = {
    'linear': dict(type='mmbixt.ClassifierHead', num_classes=5, in_channels=16),
    'vision transformer': dict(
        type='VisionTransformerClsHead', num_classes=5, in_channels=16, hidden_dim=8
    ),
}


def build(kind='mmbixt.DistilledClassifier', head='linear', train_cfg=None, **options):
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    config = dict(
        type=kind,
        backbone=dict(
            type='mmbixt.XCiT', arch=dict(embed_dims=16, num_heads=2, depth=1), out_indices=(0,)
        ),
        neck=dict(type='GlobalAveragePooling'),
        head=HEADS[head] | dict(loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1)),
        data_preprocessor=dict(mean=MEAN, std=STD, num_classes=5),
        train_cfg=train_cfg,
    )
    return MODELS.build(config | options)


def batch(model):
    """Three normalised images of 64 x 64 pixels with labels, mixed if the model mixes."""
    samples = [DataSample().set_gt_label(label) for label in (0, 3, 4)]
    data = dict(inputs=image(3, 64, 64) * 50 + 128, data_samples=samples)
    return model.data_preprocessor(data, training=True)


@pytest.mark.parametrize('train_cfg', [None, MIXED], ids=['labels', 'mixed'])
@pytest.mark.parametrize('distillation', ['hard', 'soft'])
@pytest.mark.parametrize('head', HEADS)
def test_losses_are_those_of_the_equations(head, distillation, train_cfg):
    options = dict(distillation=distillation, alpha=0.3, temperature=2.0)
    model = build(head=head, train_cfg=train_cfg, teacher=TEACHER, **options).double().eval()
    plain = build('ImageClassifier', head=head).double().eval()
    plain.load_state_dict(model.state_dict())
    data = batch(model)
    data['inputs'] = data['inputs'].double()
    losses = model(**data, mode='loss')
    assert list(losses) == ['loss_label', 'loss_teacher']
    assert_close(losses['loss_label'], 0.7 * plain(**data, mode='loss')['loss'], 1e-11)

    mean, std = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in (MEAN, STD))
    pixels = data['inputs'] * std + mean
    z = model.teacher.model((pixels / 255 - 0.5) / 0.5)
    y = plain(data['inputs'])
    if distillation == 'hard':
        expected = -y.log_softmax(1)[range(3), z.argmax(1)].mean()
    else:
        p, q = (y / 2).softmax(1), (z / 2).softmax(1)
        expected = 4 * (q * (q / p).log()).sum(1).mean()
    assert_close(losses['loss_teacher'], 0.3 * expected, 1e-6)  # mean and std are float32


def test_teacher_is_built_in_training_only_and_is_part_of_nothing():
    model, plain = build(teacher=TEACHER), build('ImageClassifier')
    data = batch(model)
    model.train()
    random = torch.get_rng_state()
    for step in range(2):
        model.eval()(**data, mode='predict')
        assert ('model' in vars(model.teacher)) == (step > 0)
        model.train().parse_losses(model(**data, mode='loss'))[0].backward()
    assert torch.equal(torch.get_rng_state(), random)  # drop path is 0
    for names in ('state_dict', 'named_parameters', 'named_modules'):
        assert list(dict(getattr(model, names)())) == list(dict(getattr(plain, names)()))
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    teacher = model.teacher.model
    assert not any(part.training for part in teacher.modules())
    assert not any(p.requires_grad for p in teacher.parameters())
    same = build(teacher=TEACHER).teacher.model.state_dict()  # also batch statistics
    assert all(torch.equal(same[name], x) for name, x in teacher.state_dict().items())


def test_mixed_precision():
    model = build(teacher=TEACHER).train()
    with torch.autocast('cpu', torch.bfloat16):
        losses = model(**batch(model), mode='loss')
    model.parse_losses(losses)[0].backward()
    assert {x.dtype for x in losses.values()} == {torch.float32}


OPTIONS = {  # as in the commands of configs/xcit/README.md, with a teacher that needs no file
    'model.type': 'mmbixt.DistilledClassifier',
    'model.teacher.model_name': 'test_resnet',
}


def test_trains_evaluates_and_resumes_with_the_same_bits(tmp_path):
    scenes = write_few_scenes(tmp_path / 'scenes')

    def train(folder, **more):
        cfg = read_config('xcit_n12_p16_in1k')
        use_scenes(cfg, str(scenes))
        cfg.merge_from_dict(OPTIONS)
        shorten(cfg, tmp_path / folder, steps=3)
        cfg.default_hooks.checkpoint.update(interval=2, save_best=None)
        cfg.default_hooks.logger.interval = 1
        cfg.update(randomness=dict(seed=0), **more)
        with fresh_mmengine():
            runner = Runner.from_cfg(cfg)
            runner.train()
        return runner

    runner = train('whole')
    logged = runner.message_hub.log_scalars
    parts = [logged[f'train/loss{part}'].current() for part in ('', '_label', '_teacher')]
    assert parts[0] == pytest.approx(parts[1] + parts[2])
    assert 'val/accuracy/top1' in logged
    shutil.copytree(tmp_path / 'whole', tmp_path / 'halves')
    train('halves', resume=True, load_from=str(tmp_path / 'halves/iter_2.pth'))
    one, other = (load(str(tmp_path / folder / 'iter_3.pth')) for folder in ('whole', 'halves'))
    for key in ('state_dict', 'optimizer'):
        torch.testing.assert_close(one[key], other[key], rtol=0, atol=0)

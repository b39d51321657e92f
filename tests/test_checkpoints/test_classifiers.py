"""The authors' classifiers in mmpretrain's ImageClassifier: whole files load, logits agree."""

import pytest
import timm
import torch
from helpers import (
    assert_close,
    formulation,
    golden,
    image,
    official_layouts,
    official_parameters,
    official_state,
    others_in_zoo,
)
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint
from mmpretrain.structures import DataSample
from test_checkpoints.layouts import LOGITS, build_meta, meta_state
from torch import nn
from variants import FAMILIES, VARIANTS

from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.checkpoints.sources import PUBLISHED
from mmbixt.classification import classifier_config

BY_NAME = {model.name: model for model in PUBLISHED}


def published(name, num_classes=1000, **options):
    """The config of a published classifier, with further ``options`` of its backbone."""
    return classifier_config({**BY_NAME[name].backbone, **options}, num_classes)


def build(config):
    init_default_scope('mmpretrain')
    return MODELS.build(config).eval()


@torch.no_grad()
@pytest.mark.parametrize('name', LOGITS)
def test_golden(name, save):
    values, batch, side, container, options = LOGITS[name]
    model = build(published(name, **options))
    state = official_state(name)
    file = save({container: state, 'epoch': 3} if container else state)
    load_checkpoint(model, file, map_location='cpu', strict=True)
    for path in ('fast', 'definition'):
        with formulation(path):
            logits = model(image(batch, side, side))
        assert golden(f'{name}__{values}').check('logits', logits.numpy()) < 2e-5


TIMM = {'xcit_tiny_12_p16': 'xcit_tiny_12_p16_224', 'swin_tiny': 'swin_tiny_patch4_window7_224'}


@torch.no_grad()
@pytest.mark.parametrize('name', TIMM)
def test_equals_timm(name, save):
    """Includes Swin's last stage of a single window, and class attention with separate q, k, v."""
    official = timm.create_model(TIMM[name], num_classes=10).eval()
    for p in official.parameters():  # large, so that each affects the output
        nn.init.normal_(p, mean=float(p.ndim == 1), std=0.5 * p.shape[-1] ** -0.5)
    init_cfg = dict(type='Pretrained', checkpoint=save({'state_dict': official.state_dict()}))
    model = build(dict(published(name, 10), init_cfg=init_cfg))
    model.init_weights()
    x = image(1, 224, 224)
    for path in ('fast', 'definition'):
        with formulation(path):
            assert_close(model(x), official(x))


LAYOUTS = [  # one of each kind of network
    *('bixt_ti_cnv_l64_d13_p16', 'bixt_ed256LS_l64_p16s8', 'xcit_nano_12_p16', 'biformer_small'),
    *('swin_tiny_microsoft', 'swin_tiny_timm', 'bisa_swin_tiny_additive'),
]
KINDS = {x: y['kind'] for x, y in official_layouts().items() if not x.endswith(('__timm', '_nchw'))}
CLASSIFIERS = [x for x in KINDS if KINDS[x].startswith('classification')]  # nchw is an ablation


@pytest.mark.parametrize('layout', others_in_zoo(CLASSIFIERS, LAYOUTS))
def test_all_weights_of_a_file_are_used(layout):
    config = published('swin_tiny' if layout.startswith('swin') else layout)
    model = build_meta(build, config=config)
    for file in (layout, f'{layout}__timm'):
        if file in official_layouts():
            missing, unexpected = model.load_state_dict(meta_state(file), strict=False)
            assert not missing
            assert not unexpected
    assert sum(p.numel() for p in model.parameters()) == official_parameters(layout)


@pytest.mark.parametrize('family', FAMILIES)
def test_trained_classifier_loads_into_classifier_and_dense_backbone(family, save):
    config = classifier_config(VARIANTS[family], num_classes=5)
    trained = build(config)
    trained.train()(image(2, 64, 64)).square().sum().backward()
    assert not [name for name, p in trained.named_parameters() if p.grad is None]
    trained.eval()
    file = save({'state_dict': trained.state_dict()})
    again = build(config)
    load_checkpoint(again, file, map_location='cpu', strict=True)
    x = image(1, 64, 64)
    assert torch.equal(again(x), trained(x))
    pretrained = dict(type='Pretrained', checkpoint=file, prefix='backbone.')
    dense = MODELS.build({**VARIANTS[family], 'init_cfg': pretrained})
    dense.init_weights()
    weights = trained.backbone.state_dict()
    for key, value in dense.state_dict().items():  # norms of outputs are new
        assert torch.equal(value, weights[key]) if key in weights else 'norm' in key


def test_backbone_and_neck_load_from_a_whole_file_for_other_classes(save):
    """The error of loading the whole classifier advises this."""
    state = official_state('xcit_nano_12_p8')
    file = save({'model': state})
    config = published('xcit_nano_12_p8', num_classes=10)
    with pytest.raises(CheckpointMismatchError, match=r'of 1000 classes, .*=10\.'):
        load_checkpoint(build(config), file, map_location='cpu')
    for part in ('backbone', 'neck'):
        config[part]['init_cfg'] = dict(type='Pretrained', checkpoint=file)
    model = build(config)
    model.init_weights()
    assert torch.equal(model.backbone.blocks[3].gamma1, state['blocks.3.gamma1'])
    assert all(torch.equal(value, state[key]) for key, value in model.neck.state_dict().items())


def test_binary_cross_entropy_accepts_class_indices():
    """As in a recipe without Mixup and CutMix."""
    loss = dict(type='CrossEntropyLoss', use_sigmoid=True)
    head = dict(type='mmbixt.ClassifierHead', num_classes=3, in_channels=4, loss=loss)
    head, vectors = build(head), (torch.randn(2, 4),)
    indices = [DataSample().set_gt_label(label) for label in (2, 0)]
    scores = [DataSample().set_gt_score(torch.eye(3)[label]) for label in (2, 0)]
    assert torch.equal(*(head.loss(vectors, samples)['loss'] for samples in (indices, scores)))

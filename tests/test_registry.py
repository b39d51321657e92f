"""mmbixt from outside: what resolves in other people's projects, and what is said if it cannot.

Each process looks like another project, in a folder elsewhere, with some packages not installed.
"""

import json

import pytest
from helpers import python

# A finder in front of all others makes a module look as if it were not installed.
PROGRAM = """
import json, sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {hidden!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Hide())

answers = {{}}

def package(thing):
    return type(thing).__module__.split('.')[0]

import mmbixt.registry
import torch
from mmengine.config import Config
from mmengine.hub import get_model
from mmengine.registry import DATASETS, METRICS, MODELS, TRANSFORMS, VISUALIZERS
from mmengine.registry import init_default_scope

# mmengine's hub builds without a runner, and so without a default scope
for name, part in {hub!r}:
    with torch.device('meta'):
        model = get_model(f'mmbixt::{{name}}.py')
    parts = (model, model.backbone, eval(f'model.{{part}}'))
    answers[name] = [package(part) for part in parts]

if not {hidden!r}:
    with torch.device('meta'):
        backbone = dict(type='mmbixt.XCiT', arch='nano12', out_indices=(-1,))
        neck = dict(type='GlobalAveragePooling')
        mixed = dict(augments=dict(type='Mixup', alpha=0.8))
        cfg = dict(type='ImageClassifier', backbone=backbone, neck=neck, train_cfg=mixed)
        model = MODELS.build(dict(cfg, _scope_='mmbixt'))
    parts = model, model.backbone, model.neck, model.data_preprocessor.batch_augments
    answers['classifier'] = [package(part) for part in parts]

cfg = Config.fromfile('mine.py')
import mmseg.models
assert cfg.model['_scope_'] == 'mmbixt'
init_default_scope(cfg.default_scope)
cfg.model.decode_head.norm_cfg = cfg.model.neck[0].norm_cfg = dict(type='BN')
model = MODELS.build(cfg.model)
parts = [model, model.backbone, model.neck[1], model.decode_head]
parts += [TRANSFORMS.build(transform) for transform in cfg.test_pipeline]
parts += [METRICS.build(cfg.val_evaluator), VISUALIZERS.build(cfg.visualizer)]
answers['inherited'] = [package(part) for part in parts]

if not {hidden!r}:
    init_default_scope('mmdet')
    dataset = DATASETS.build(dict(cfg.val_dataloader.dataset, lazy_init=True))
    answers['after mmdet'] = [package(transform) for transform in dataset.pipeline.transforms]
with open('answers.json', 'w') as file:
    json.dump(answers, file)
"""
USER_CONFIG = """
_base_ = 'mmbixt::bixt/semfpn_bixt_ti_ade20k.py'
model = dict(train_cfg=dict())
"""
SEMFPN = ('bixt/semfpn_bixt_ti_ade20k', 'neck[1]')
UPERNET = ('biformer/upernet_biformer_t_ade20k', 'auxiliary_head')
RETINANET = ('biformer/retinanet_biformer_t_1x_coco', 'neck')


@pytest.mark.zoo
@pytest.mark.parametrize(
    ('hidden', 'hub'), [([], [SEMFPN, UPERNET, RETINANET]), (['mmdet', 'mmpretrain'], [SEMFPN])]
)
def test_names_are_those_of_the_framework_that_the_config_is_for(tmp_path, hidden, hub):
    """Those that several frameworks have, in the hub and in configs that inherit."""
    (tmp_path / 'mine.py').write_text(USER_CONFIG)
    python('-W', 'ignore', '-c', PROGRAM.format(hidden=hidden, hub=hub), cwd=tmp_path)
    found = json.loads((tmp_path / 'answers.json').read_text())
    for name, _ in hub:
        framework = 'mmdet' if name.endswith('coco') else 'mmseg'
        assert found[name] == [framework, 'mmbixt', framework]
    assert found['inherited'] == [
        *('mmseg', 'mmbixt', 'mmseg', 'mmseg'),
        *('mmcv', 'mmseg', 'mmseg', 'mmbixt', 'mmseg'),
        *('mmseg', 'mmseg'),
    ]
    if not hidden:
        assert found['classifier'] == ['mmpretrain', 'mmbixt', 'mmpretrain', 'mmpretrain']
        assert found['after mmdet'] == ['mmcv', 'mmseg', 'mmseg', 'mmbixt', 'mmseg']

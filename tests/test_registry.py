"""mmbixt from outside: what resolves in other people's projects, and what is said if it cannot.

Each process looks like another project, in a folder elsewhere, with some packages not installed.
Importing the frameworks takes seconds, so one process answers several questions.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

# A finder in front of all others makes a module look as if it were not installed.
START = """
import json, sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {hidden!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Hide())

answers = {{}}

def error_of(function, *arguments):
    try:
        function(*arguments)
    except (Exception, SystemExit) as error:
        return f'{{type(error).__name__}}: {{error}}'

def package(thing):
    return type(thing).__module__.split('.')[0]
"""
USER_CONFIG = """
_base_ = 'mmbixt::bixt/semfpn_bixt_ti_ade20k.py'
model = dict(train_cfg=dict())
"""


def run(folder, code, hidden=()):
    """Run code that fills the dictionary ``answers``."""
    Path(folder, 'mine.py').write_text(USER_CONFIG)
    program = START.format(hidden=tuple(hidden)) + code + "\nprint('\\n' + json.dumps(answers))"
    command = [sys.executable, '-W', 'ignore', '-c', program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_missing_framework_breaks_what_needs_it_only(tmp_path):
    code = """
from mmengine.registry import HOOKS, METRICS, MODELS
answers['backbone'] = package(MODELS.build(dict(type='mmbixt.BiXT', out_indices=(0,))))
answers['metric'] = package(METRICS.build(dict(type='mmbixt.BoundaryIoUMetric')))
answers['hook'] = package(HOOKS.build(dict(type='mmbixt.BoundaryVisHook')))
neck = dict(type='mmbixt.FeaturePyramidAdapter', in_channels=8, in_strides=16)
answers['neck'] = error_of(MODELS.build, neck)
head = dict(type='mmbixt.LinearTokenHead', in_channels=8, num_classes=2)
answers['built head'] = error_of(MODELS.build, head)
def imported():
    from mmbixt.decode_heads import LinearTokenHead
answers['imported head'] = error_of(imported)
"""
    found = run(tmp_path, code, ['mmseg', 'mmdet', 'mmcv'])
    assert 'FeaturePyramidAdapter needs mmcv, which cannot be imported' in found['neck']
    assert 'LinearTokenHead needs mmseg' in found['built head']
    assert found['imported head'].startswith('ImportError: mmbixt.LinearTokenHead needs mmseg')
    assert {found[part] for part in ('backbone', 'metric', 'hook')} == {'mmbixt'}


INHERITED = """
import mmbixt.registry
import torch
from mmengine.config import Config
from mmengine.hub import get_model
from mmengine.registry import DATASETS, METRICS, MODELS, TRANSFORMS, VISUALIZERS
from mmengine.registry import init_default_scope

ours = mmbixt.registry.TRANSFORMS.get
answers['clash'] = error_of(ours, 'LoadAnnotations')

# mmengine's hub builds without a runner, and so without a default scope
for name, part in {hub!r}:
    with torch.device('meta'):
        model = get_model(f'mmbixt::{{name}}.py')
    parts = (model, model.backbone, eval(f'model.{{part}}'))
    answers[name] = [package(part) for part in parts]

def classifier():
    with torch.device('meta'):
        backbone = dict(type='mmbixt.XCiT', arch='nano12', out_indices=(-1,))
        neck = dict(type='GlobalAveragePooling')
        mixed = dict(augments=dict(type='Mixup', alpha=0.8))
        cfg = dict(type='ImageClassifier', backbone=backbone, neck=neck, train_cfg=mixed)
        model = MODELS.build(dict(cfg, _scope_='mmbixt'))
    parts = model, model.backbone, model.neck, model.data_preprocessor.batch_augments
    answers['classifier'] = [package(part) for part in parts]
answers['no classifier'] = error_of(classifier)

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
answers['in scope'] = ours('LoadAnnotations').__module__.split('.')[0]
"""
WITHOUT_MMDET = """
coco = dict(type='mmbixt.BoundaryCocoMetric', metric='segm')
answers['coco'] = error_of(METRICS.build, coco)
"""
AFTER_MMDET = """
init_default_scope('mmdet')
dataset = DATASETS.build(dict(cfg.val_dataloader.dataset, lazy_init=True))
answers['after mmdet'] = [package(transform) for transform in dataset.pipeline.transforms]
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
    code = INHERITED.format(hub=hub) + (WITHOUT_MMDET if hidden else AFTER_MMDET)
    found = run(tmp_path, code, hidden)
    for name, _ in hub:
        framework = 'mmdet' if name.endswith('coco') else 'mmseg'
        assert found[name] == [framework, 'mmbixt', framework]
    assert found['inherited'] == [
        *('mmseg', 'mmbixt', 'mmseg', 'mmseg'),
        *('mmcv', 'mmseg', 'mmseg', 'mmbixt', 'mmseg'),
        *('mmseg', 'mmseg'),
    ]
    assert found['in scope'] == 'mmseg'
    if hidden:  # there is one framework to choose
        assert found['clash'] is None
        assert 'ImageClassifier is not in the mmbixt::model registry' in found['no classifier']
        assert found['coco'].startswith('ImportError: mmbixt.BoundaryCocoMetric needs mmdet')
    else:
        message = 'LookupError: LoadAnnotations is .* of mmseg, mmdet, mmpretrain, .*init_default'
        assert re.match(message, found['clash'])
        assert found['classifier'] == ['mmpretrain', 'mmbixt', 'mmpretrain', 'mmpretrain']
        assert found['no classifier'] is None
        assert found['after mmdet'] == ['mmcv', 'mmseg', 'mmseg', 'mmbixt', 'mmseg']

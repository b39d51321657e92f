"""mmbixt from outside: what resolves in other people's projects, and what is said if it cannot."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# A finder in front of all others makes a module look as if it were not installed.
HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {hidden!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)
sys.meta_path.insert(0, Hide())
"""


def run(code, folder, hidden=()):
    """Run code as in another project: a foreign folder, some packages not installed."""
    program = HIDE.format(hidden=tuple(hidden)) + textwrap.dedent(code)
    command = [sys.executable, '-W', 'ignore', '-c', program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()


BUILD = """
    from mmengine.registry import init_default_scope
    {scope}
    from {registry} import MODELS
    backbone = MODELS.build(dict(type='mmbixt.BiXT', out_indices=(0,)))
    print(type(backbone).__module__)
"""


@pytest.mark.parametrize(
    ('registry', 'scope', 'hidden'),
    [
        ('mmseg.registry', 'mmseg', ['mmdet']),
        ('mmdet.registry', 'mmdet', ['mmseg']),
        ('mmengine.registry', 'mmengine', ['mmseg', 'mmdet', 'mmcv']),
        ('mmengine.registry', None, ['mmseg', 'mmdet', 'mmcv']),
        ('mmengine.registry', 'mmseg', []),
    ],
)
def test_backbone_resolves_without_imports(tmp_path, registry, scope, hidden):
    scope = f'init_default_scope({scope!r})' if scope else ''
    output = run(BUILD.format(registry=registry, scope=scope), tmp_path, hidden)
    assert output[-1] == 'mmbixt.backbones.bixt'


def test_plain_import(tmp_path):
    output = run('from mmbixt.backbones import BiXT; print(BiXT.__name__)', tmp_path)
    assert output == ['BiXT']


def test_importing_mmbixt_is_cheap_and_needs_no_framework(tmp_path):
    code = """
        import mmbixt
        heavy = {'torch', 'mmcv', 'mmseg', 'mmdet', 'timm'} & set(sys.modules)
        print(mmbixt.__version__, heavy or 'nothing heavy')
    """
    assert run(code, tmp_path)[-1].endswith('nothing heavy')
    assert run('import mmbixt; print("fine")', tmp_path, ['mmengine', 'torch']) == ['fine']


def test_ops_need_torch_alone(tmp_path):
    code = """
        import torch
        from mmbixt.ops import bidirectional_attention
        x = torch.zeros(1, 1, 2, 4)
        print(bidirectional_attention(x, x, x, x, 1.0)[1].shape)
    """
    hidden = ['mmengine', 'mmcv', 'mmseg', 'mmdet', 'timm', 'torchvision']
    assert run(code, tmp_path, hidden) == ['torch.Size([1, 1, 2, 4])']


@pytest.mark.parametrize(
    ('hidden', 'code', 'message'),
    [
        (
            ['mmseg'],
            "MODELS.build(dict(type='mmbixt.LinearTokenHead', in_channels=8, num_classes=2))",
            'mmbixt.LinearTokenHead needs mmseg.*pip install mmsegmentation.*onedl-mmsegmentation',
        ),
        (
            ['mmseg'],
            'from mmbixt.decode_heads import LinearTokenHead',
            'mmbixt.LinearTokenHead needs mmseg.*pip install mmsegmentation',
        ),
        (
            ['mmcv'],
            "MODELS.build(dict(type='mmbixt.FeaturePyramidAdapter', in_channels=8, in_strides=16))",
            'mmbixt.FeaturePyramidAdapter needs mmcv.*mim install',
        ),
        (
            ['mmengine'],
            'from mmbixt.backbones import BiXT',
            'needs mmengine.*pip install mmengine.*onedl-mmengine',
        ),
    ],
)
def test_what_misses_a_framework_says_what_to_install(tmp_path, hidden, code, message):
    program = f"""
        import re
        try:
            if 'MODELS' in {code!r}:
                from mmengine.registry import MODELS
            {code}
        except ImportError as error:
            print(error)
    """
    import re

    assert re.search(message, ' '.join(run(program, tmp_path, hidden)))


def test_metrics_resolve_without_imports_and_say_what_they_miss(tmp_path):
    code = """
        from mmengine.registry import METRICS
        print(METRICS.build(dict(type='mmbixt.BoundaryIoUMetric')).options['widths'])
        try:
            print(METRICS.build(dict(type='mmbixt.BoundaryCocoMetric', metric='segm')).ratio)
        except ImportError as error:
            print(error)
    """
    assert run(code, tmp_path, [])[-2:] == ['(1, 3, 5, 0.02)', '0.02']
    widths, message = run(code, tmp_path, ['mmdet'])[-2:]
    assert widths == '(1, 3, 5, 0.02)'
    assert 'BoundaryCocoMetric needs mmdet' in message


def test_hook_resolves_without_imports_and_needs_no_framework(tmp_path):
    code = """
        from mmengine.registry import HOOKS
        print(HOOKS.build(dict(type='mmbixt.BoundaryVisHook', interval=7)).interval)
    """
    assert run(code, tmp_path, ['mmseg', 'mmdet', 'mmcv'])[-1] == '7'


def test_a_missing_framework_does_not_break_the_rest(tmp_path):
    code = """
        from mmdet.registry import MODELS
        print(MODELS.build(dict(type='mmbixt.BiXT', out_indices=(0,))).out_channels)
        neck = dict(type='mmbixt.FeaturePyramidAdapter', in_channels=8, in_strides=16)
        print(MODELS.build(neck).out_strides)
    """
    assert run(code, tmp_path, ['mmseg'])[-2:] == ['(192,)', '(4, 8, 16, 32)']


def test_nothing_is_registered_twice(tmp_path):
    code = """
        import importlib
        import mmbixt.registry
        from mmengine.registry import MODELS
        MODELS.get('mmbixt.BiXT'); MODELS.get('mmbixt.BiXT')
        importlib.import_module('mmbixt.backbones.bixt')
        print(sorted(mmbixt.registry.MODELS.module_dict))
    """
    backbones = ['BiFormer', 'BiSASwin', 'BiXT', 'XCiT']
    expected = sorted([*backbones, 'FeaturePyramidAdapter', 'LinearTokenHead'])
    assert run(code, tmp_path)[-1] == str(expected)


USER_CONFIG = "_base_ = 'mmbixt::bixt/semfpn_bixt_ti_ade20k.py'\n"


def test_config_inherits_through_the_package(tmp_path):
    Path(tmp_path, 'mine.py').write_text(USER_CONFIG)
    code = """
        import mmbixt
        from mmengine.config import Config
        print(Config.fromfile('mine.py').model.backbone.type)
    """
    assert run(code, tmp_path)[-1] == 'mmbixt.BiXT'


@pytest.mark.parametrize('hidden', [[], ['mmdet']])
def test_inherited_config_builds_what_the_framework_means(tmp_path, hidden):
    """Names that mmcv, mmseg and mmdet all have are those of the default scope."""
    Path(tmp_path, 'mine.py').write_text(USER_CONFIG + 'model = dict(train_cfg=dict())\n')
    code = """
        import mmbixt
        from mmengine.config import Config
        from mmengine.registry import DATASETS, METRICS, MODELS, TRANSFORMS, VISUALIZERS
        from mmengine.registry import init_default_scope
        cfg = Config.fromfile('mine.py')
        assert cfg.model['_scope_'] == 'mmbixt'
        init_default_scope(cfg.default_scope)
        cfg.model.decode_head.norm_cfg = cfg.model.neck[0].norm_cfg = dict(type='BN')
        model = MODELS.build(cfg.model)
        for part in (model, model.backbone, model.neck[1], model.decode_head):
            print(type(part).__module__)
        for transform in cfg.test_pipeline:
            print(type(TRANSFORMS.build(transform)).__module__)
        print(type(METRICS.build(cfg.val_evaluator)).__module__)
        print(type(VISUALIZERS.build(cfg.visualizer)).__module__)
    """
    modules = [line for line in run(code, tmp_path, hidden) if line.startswith('mm')]
    assert [module.split('.')[0] for module in modules] == [
        *('mmseg', 'mmbixt', 'mmseg', 'mmseg'),
        *('mmcv', 'mmseg', 'mmseg', 'mmseg'),
        *('mmseg', 'mmseg'),
    ]


@pytest.mark.parametrize(
    ('config', 'part', 'hidden', 'framework'),
    [
        ('bixt/semfpn_bixt_ti_ade20k.py', 'neck[1]', ['mmdet'], 'mmseg'),
        ('biformer/upernet_biformer_t_ade20k.py', 'auxiliary_head', [], 'mmseg'),
        ('biformer/retinanet_biformer_t_1x_coco.py', 'neck', [], 'mmdet'),
        ('biformer/retinanet_biformer_t_1x_coco.py', 'neck', ['mmseg'], 'mmdet'),
    ],
)
def test_hub_builds_what_the_framework_means(tmp_path, config, part, hidden, framework):
    """mmengine's hub builds without a runner, and so without a default scope."""
    code = f"""
        import mmbixt
        import torch
        from mmengine.hub import get_config, get_model
        print(get_config('mmbixt::{config}').model.backbone.type)
        with torch.device('meta'):
            model = get_model('mmbixt::{config}')
        for part in (model, model.backbone, model.{part}):
            print(type(part).__module__)
    """
    lines = [line for line in run(code, tmp_path, hidden) if line.startswith('mm')]
    packages = [line.split('.')[0] for line in lines]
    assert packages == ['mmbixt', framework, 'mmbixt', framework]

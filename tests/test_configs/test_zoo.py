"""Configs agree with their metafiles, READMEs and sources; models build, train and evaluate.

`make test-zoo` builds, counts and trains all models, `make test` only some of the smallest ones.
"""

import math

import pytest
import torch
import yaml
from get_flops import measure_model
from helpers import CONFIGS, others_in_zoo, unused_parameters
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from running import fresh_mmengine, write_few_scenes

from mmbixt.checkpoints.sources import SOURCES
from mmbixt.datasets.availability import check_datasets
from mmbixt.sample.sample_config import use_sample_data

ROOT = CONFIGS.parent
FAMILIES = sorted(path.parent.name for path in CONFIGS.glob('*/metafile.yml'))
PATHS = {path.stem: path for path in sorted(CONFIGS.glob('*/*.py')) if path.parent.name != '_base_'}
METAFILES = {
    family: yaml.safe_load((CONFIGS / family / 'metafile.yml').read_text()) for family in FAMILIES
}
LISTED = {model['Name']: model for meta in METAFILES.values() for model in meta['Models']}
# each family, decoder and kind of detector; the Semantic FPN is in test_tools/test_train_and_test
TRAINED = [
    'linear_bixt_ti_ade20k',
    'maskrcnn_xcit_t12_p16_3x_coco',
    'retinanet_biformer_t_1x_coco',
    'upernet_bisa_swin_t_ade20k',
]
BUILT = [*TRAINED, 'semfpn_xcit_t12_p16_ade20k', 'upernet_biformer_t_ade20k']
DENSE = [name for name in PATHS if not name.endswith(('_in1k', '_cifar100'))]
CLASSIFIERS = [
    *('xcit_n12_p8_in1k', 'bixt_ti_cnv_lpi_l64_d13_p16_in1k', 'swin_t_in1k'),
    *('biformer_t_in1k', 'biformer_stl_nchw_in1k', 'bisa_swin_t_in1k'),
]


def test_names_are_unique_and_the_index_lists_every_family():
    """mim finds configs by their names."""
    assert len(PATHS) == len([*CONFIGS.glob('[!_]*/*.py')])
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    assert sorted(index['Import']) == [f'configs/{family}/metafile.yml' for family in FAMILIES]


@pytest.mark.parametrize('family', FAMILIES)
def test_every_config_is_listed_and_every_listed_file_is_there(family):
    meta = METAFILES[family]
    there = sorted(path.stem for path in (CONFIGS / family).glob('*.py'))
    listed = [(model['Name'], model['Config']) for model in meta['Models']]
    assert listed == [(name, f'configs/{family}/{name}.py') for name in there]
    (collection,) = meta['Collections']
    assert {model['In Collection'] for model in meta['Models']} == {collection['Name']}
    for path in (collection['README'], collection['Code']['URL']):
        assert (ROOT / path).is_file()


@pytest.mark.parametrize('name', [name for name, model in LISTED.items() if 'Weights' in model])
def test_weights_and_results_are_those_of_the_named_source(name):
    model = LISTED[name]
    (source,) = [source for source in SOURCES.values() if source.url == model['Weights']]
    metrics = [pair for result in model.get('Results', ()) for pair in result['Metrics'].items()]
    assert source.figure == ', '.join(f'{metric} {value}' for metric, value in metrics)
    assert f'`{source.name}`' in (CONFIGS / 'xcit/README.md').read_text()


@pytest.mark.parametrize('name', PATHS)
def test_schedule_is_the_listed_one_and_published_weights_fit(name):
    cfg, meta = Config.fromfile(PATHS[name]), LISTED[name]['Metadata']
    assert meta['Batch Size'] == cfg.auto_scale_lr.base_batch_size
    assert cfg.auto_scale_lr.base_batch_size == 8 * cfg.train_dataloader.batch_size
    length = cfg.train_cfg.get('max_iters', cfg.train_cfg.get('max_epochs'))
    assert meta.get('Iterations', meta.get('Epochs')) == length
    assert {'tta_model', 'tta_pipeline'} <= cfg.keys() or cfg.default_scope != 'mmseg'
    backbone = cfg.model.backbone
    if cfg.default_scope == 'mmpretrain':  # trained from random weights
        assert 'init_cfg' not in backbone
        assert [part.end for part in cfg.param_scheduler][-1] == length
        return
    model, _, arguments = SOURCES[backbone.init_cfg.checkpoint].fills.partition(': ')
    assert model == backbone.type
    in_files = {'arch', 'patch_size', 'patch_stride', 'patch_embed'}
    given = {key: value for key, value in backbone.items() if key in in_files}
    expected = eval(f'dict({arguments})')
    expected.pop('bisa_stages', None)  # inverse attention is in no file
    defaults = dict(patch_size=16, patch_stride=16, patch_embed='linear')
    assert {**defaults, **given} == {**defaults, **expected}
    assert ('dist' in backbone.init_cfg.checkpoint) == (model == 'mmbixt.XCiT')


def test_cifar100_needs_no_files():
    """It would be downloaded."""
    check_datasets(Config.fromfile(PATHS['bisa_swin_t_cifar100']), ('train', 'val'))


@pytest.mark.parametrize('name', others_in_zoo(PATHS, BUILT))
def test_model(name):
    """It builds and runs, and agrees with the tables of its folder and the recipe of its family."""
    cfg = Config.fromfile(PATHS[name])
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    if '_bixt_' in name and name.startswith(('linear', 'semfpn')):
        check_weight_decay_of_bixt(cfg, model)
    if cfg.default_scope == 'mmseg':
        with torch.no_grad():
            logits = model.eval()(torch.empty(1, 3, 64, 96, device='meta'), mode='tensor')
        stride = {'linear_bixt_ti_ade20k': 16, 'linear_bixt_ti_s8_ade20k': 8}.get(name, 4)
        assert logits.shape == (1, 150, 64 // stride, 96 // stride)
    check_tables(name, model, cfg.default_scope)
    heads = ['decode_head', 'auxiliary_head', 'bbox_head', 'rpn_head', 'head']
    unused = unused_parameters(model, heads)
    assert [key for key in unused if not key.startswith('roi_head.')] == []  # needs real values


def check_tables(name, model, scope):
    """Compare parameters and multiply-adds with the metafile and the README."""
    meta = LISTED[name]['Metadata']
    side, digits = (224, 2) if scope == 'mmpretrain' else (512, 1)
    macs = meta.get(f'Multiply-adds at {side}x{side} (G)', '–')
    assert (macs == '–') == (scope == 'mmdet')
    if macs != '–':
        macs = f'{macs:.{digits}f}'
        assert f'{measure_model(model, side, side)[-1][2] / 1e9:.{digits}f}' == macs
    parameters = sum(p.numel() for p in model.parameters())
    assert meta['Parameters'] == parameters
    readme = (PATHS[name].parent / 'README.md').read_text()
    assert f'| `{name}` | {parameters:,} | {macs} |' in readme


def check_weight_decay_of_bixt(cfg, model):
    """Norms, latents and position encodings have no weight decay, all other parameters have."""
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    decay = {id(p): g['weight_decay'] for g in optimizer.param_groups for p in g['params']}
    for name, parameter in model.named_parameters():
        module = model.get_submodule(name.rpartition('.')[0])
        exempt = 'Norm' in type(module).__name__ or name.startswith(
            ('backbone.latents', 'backbone.fourier_pos_encode.')
        )
        assert decay[id(parameter)] == (0.0 if exempt else 0.01), name


@pytest.fixture(scope='module')
def scenes(tmp_path_factory):
    return write_few_scenes(tmp_path_factory.mktemp('data') / 'scenes')


def shorten(cfg, folder, steps):
    """A few steps, a few images to evaluate, no checkpoint (up to a GB)."""
    cfg.train_cfg.update(max_iters=steps, val_interval=steps)
    cfg.train_dataloader.batch_size = 2
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].update(num_workers=0, persistent_workers=False)
    cfg.val_dataloader.dataset.indices = steps
    cfg.default_hooks.checkpoint = None
    if cfg.default_scope == 'mmdet':
        cfg.train_dataloader.batch_size = 1
        # after two steps nothing is certain
        test_cfg = cfg.model.test_cfg
        test_cfg.get('rcnn', test_cfg).score_thr = 0.0
    if cfg.default_scope == 'mmpretrain':  # its RepeatAugSampler takes multiples of 256 images
        cfg.train_dataloader.sampler = dict(type='InfiniteSampler')
    cfg.work_dir = str(folder)


@pytest.mark.parametrize('name', others_in_zoo([*DENSE, *CLASSIFIERS], TRAINED))
def test_trains_and_evaluates(name, scenes, tmp_path, request):
    cfg = Config.fromfile(PATHS[name])
    use_sample_data(cfg, str(scenes))
    shorten(cfg, tmp_path, 2 if request.node.get_closest_marker('zoo') else 1)
    with fresh_mmengine():
        runner = Runner.from_cfg(cfg)
        runner.train()
    logged = runner.message_hub.log_scalars
    assert math.isfinite(logged['train/loss'].current())
    score = dict(mmseg='mIoU', mmdet='coco/bbox_mAP', mmpretrain='accuracy/top1')
    assert f'val/{score[cfg.default_scope]}' in logged
    assert 'val/coco/segm_mAP' in logged or not name.startswith('maskrcnn')

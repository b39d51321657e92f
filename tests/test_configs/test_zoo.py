"""Configs agree with their metafiles, READMEs and sources; models build, train and evaluate.

So do the rows of the papers' tables that are options of a config.

`make test-zoo` builds and counts all models, and trains the smallest of each kind; `make test` does
so for a few.
"""

import math
import re
from collections import defaultdict

import pytest
import torch
import yaml
from get_flops import measure_model
from helpers import CONFIGS, others_in_zoo, unused_parameters
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from paper_table import SCORES, families, read_metafile, read_rows
from readme_tables import with_tables
from running import fresh_mmengine, parse_options, shorten, write_few_scenes

from mmbixt.checkpoints.sources import BY_ADDRESS, SOURCES
from mmbixt.config import PROJECTS, config_files
from mmbixt.scenes.short_runs import use_scenes

ROOT = CONFIGS.parent
FAMILIES = families()
METAFILES = {family: read_metafile(folder) for family, folder in FAMILIES.items()}
LISTED = {model['Name']: model for meta in METAFILES.values() for model in meta['Models']}
PATHS = dict(sorted(config_files().items()))
PATHS = {
    name: path for name, path in PATHS.items() if path.parents[1].name not in ('camvid', 'nuclei')
}
# rows of the papers' tables that are options of a config, by the names of their work dirs
ROWS = {
    row.run: row
    for row in read_rows()
    if 'Options' in row.result and 'Weights' not in row.result and row.has_run
}
# each family of backbones, and a row of a paper; Semantic FPN is in
# test_tools/test_train_and_test, plain ViTs are in test_plain_vit
TRAINED = [
    'linear_bixt_ti_ade20k',
    'retinanet_biformer_t_1x_coco',
    'upernet_bisa_swin_t_ade20k',
    'xcit_s12_p16_ablation_in1k-without-lpi',
]
BUILT = [
    *TRAINED,
    'maskrcnn_xcit_t12_p16_3x_coco',
    'semfpn_dinov3_s16_ade20k',
    'semfpn_xcit_t12_p16_ade20k',
    'upernet_biformer_t_ade20k',
]
DENSE = [name for name in PATHS if name.endswith(('_ade20k', '_coco'))]


def smallest_of_each_kind(names, sizes, cost):
    """Of the configs whose names differ in words for sizes alone, the one with the lowest cost."""
    kinds = {}
    for name in sorted(names, key=lambda x: float(LISTED[x]['Metadata'][cost]), reverse=True):
        kinds['_'.join(word for word in name.split('_') if not re.fullmatch(sizes, word))] = name
    return sorted(kinds.values())


# sizes of a network and of its patches, and the length of the training
CLASSIFIERS = smallest_of_each_kind(
    (name for name in PATHS if name.endswith(('_in1k', '_cifar100', '_transfer'))),
    r'(sa|[a-z])\d+(s\d+)?|[tsb]|\d+e',
    'Multiply-adds at 224x224 (G)',
)
# not of patches, on which the strides of necks and anchors depend
DETECTORS_AND_SEGMENTORS = smallest_of_each_kind(DENSE, r'[tsm](12|24)|[tsb]|[13]x', 'Parameters')
# Mask R-CNN with narrow heads, which take most of its time
NARROW = {
    f'model.{key}': 64
    for key in (
        *('neck.1.out_channels', 'rpn_head.in_channels', 'rpn_head.feat_channels'),
        *('roi_head.bbox_roi_extractor.out_channels', 'roi_head.mask_roi_extractor.out_channels'),
        *('roi_head.mask_head.in_channels', 'roi_head.mask_head.conv_out_channels'),
        *('roi_head.bbox_head.in_channels', 'train_cfg.rcnn.sampler.num'),
    )
} | {'model.roi_head.bbox_head.fc_out_channels': 256}
# iterations, images in a batch, options; the scores, and how far from them a run may be
LEARNED = {
    'maskrcnn_xcit_t12_p16_3x_coco': (
        *(160, 2, NARROW),
        {'val/coco/bbox_mAP': (0.18, 0.04), 'val/coco/segm_mAP': (0.109, 0.025)},
    ),
    'semfpn_xcit_t12_p16_ade20k': (120, 4, {}, {'val/mIoU': (54, 7)}),
    'xcit_n12_p16_in1k': (
        *(150, 8, {'model.train_cfg': None}),
        {'val/accuracy/top1': (72, 16), 'train/loss': (1.5, 0.5)},
    ),
}


def load_config(name):
    """A config, also of a row."""
    if name not in ROWS:
        return Config.fromfile(PATHS[name])
    cfg = Config.fromfile(PATHS[ROWS[name].config])
    cfg.merge_from_dict(parse_options(ROWS[name].result['Options']))
    return cfg


def test_names_are_unique_and_the_index_lists_every_family():
    """mim finds configs by their names."""
    files = [*CONFIGS.glob('[!_]*/*.py'), *PROJECTS.glob('*/configs/*.py')]
    assert len(config_files()) == len(files)
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    there = sorted(
        path.relative_to(ROOT).as_posix() for path in ROOT.glob('configs/*/metafile.yml')
    )
    assert sorted(index['Import']) == there


@pytest.mark.parametrize('family', FAMILIES)
def test_every_config_is_listed_and_every_listed_file_is_there(family):
    meta, folder = METAFILES[family], FAMILIES[family].resolve()
    there = [path.resolve() for path in PATHS.values()]
    listed = [(model['Name'], ROOT / model['Config']) for model in meta['Models']]
    assert listed == [(path.stem, path) for path in there if folder in path.parents]
    (collection,) = meta['Collections']
    assert {model['In Collection'] for model in meta['Models']} == {collection['Name']}
    for path in (collection['README'], collection['Code']['URL']):
        assert (ROOT / path).is_file()


@pytest.mark.parametrize('family', FAMILIES)
def test_tables_of_the_readme_are_those_of_the_metafile(family):
    in_step = (FAMILIES[family] / 'README.md').read_text() == with_tables(FAMILIES[family])
    assert in_step, 'run python tools/dev/readme_tables.py'


@pytest.mark.parametrize('name', LISTED)
def test_results_are_those_of_their_sources(name):
    model, published = LISTED[name], defaultdict(dict)
    for result in model.get('Results', ()):
        assert result.keys() - {'Row', 'Options', 'Weights', 'Parameters', 'Note'} == {
            *('Task', 'Dataset', 'Metrics', 'Source')
        }
        assert result.keys() >= {'Row'} or not result.keys() & {'Options', 'Parameters'}
        assert result['Metrics'].keys() <= SCORES.keys() or 'Note' in result  # else tools give it
        if 'Weights' in result:
            published[result['Weights']] |= result['Metrics']
    for weights, metrics in published.items():
        figures = [part.rsplit(' ', 1) for part in SOURCES[weights].figure.split(', ') if part]
        assert {key: float(value) for key, value in figures}.items() <= {
            key: float(value) for key, value in metrics.items()
        }.items()
    assert 'Weights' not in model or model['Weights'] in BY_ADDRESS


def test_each_work_dir_is_of_one_run():
    runs = defaultdict(set)
    for row in read_rows():
        if row.has_run:
            runs[row.run].add((row.result.get('Options'), row.result.get('Weights')))
    assert [name for name, different in runs.items() if len(different) > 1] == []


@pytest.mark.parametrize('name', PATHS)
def test_schedule_is_the_listed_one_and_published_weights_fit(name):
    cfg, meta = Config.fromfile(PATHS[name]), LISTED[name]['Metadata']
    assert int(meta['Batch Size']) == cfg.auto_scale_lr.base_batch_size
    gpus = 1 if cfg.default_scope == 'mmengine' else 8
    assert cfg.auto_scale_lr.base_batch_size == gpus * cfg.train_dataloader.batch_size
    length = cfg.train_cfg.get('max_iters', cfg.train_cfg.get('max_epochs'))
    assert int(meta.get('Iterations', meta.get('Epochs'))) == length
    assert cfg.param_scheduler[-1].end == length
    assert {'tta_model', 'tta_pipeline'} <= cfg.keys() or cfg.default_scope != 'mmseg'
    backbone = cfg.model.backbone
    if cfg.default_scope in ('mmpretrain', 'mmengine'):
        assert 'init_cfg' not in backbone or name.endswith('transfer')
        return
    if backbone.type == 'mmpretrain.TIMMBackbone':
        assert backbone.pretrained
        return
    model, _, arguments = SOURCES[backbone.init_cfg.checkpoint].model_text.partition(': ')
    assert model == backbone.type
    in_files = {'arch', 'patch_size', 'patch_stride', 'patch_embed'}
    given = {key: value for key, value in backbone.items() if key in in_files}
    expected = eval(f'dict({arguments})')
    expected.pop('bisa_stages', None)  # inverse attention is in no file
    defaults = dict(patch_size=16, patch_stride=16, patch_embed='linear')
    assert {**defaults, **given} == {**defaults, **expected}
    assert ('dist' in backbone.init_cfg.checkpoint) == (model == 'mmbixt.XCiT')


@pytest.mark.parametrize('name', others_in_zoo([*PATHS, *ROWS], BUILT))
def test_model(name):
    """It builds and runs, and agrees with its metafile and the recipe of its family."""
    cfg = load_config(name)
    init_default_scope(cfg.default_scope)
    cfg.model.backbone.pop('pretrained', None)  # of timm, which would download weights
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    if cfg.default_scope == 'mmseg':
        with torch.no_grad():
            logits = model.eval()(torch.empty(1, 3, 64, 96, device='meta'), mode='tensor')
        stride = {'linear_bixt_ti_ade20k': 16, 'linear_bixt_ti_s8_ade20k': 8}.get(name, 4)
        assert logits.shape == (1, 150, 64 // stride, 96 // stride)
    parameters = sum(p.numel() for p in model.parameters())
    if name in ROWS:
        assert int(ROWS[name].result.get('Parameters', parameters)) == parameters
    else:
        assert int(LISTED[name]['Metadata']['Parameters']) == parameters
        check_multiply_adds(name, model, cfg.default_scope)
    if cfg.default_scope == 'mmengine':  # of points, which test_points has
        return
    heads = ['decode_head', 'auxiliary_head', 'bbox_head', 'rpn_head', 'head']
    unused = unused_parameters(model, heads)
    assert [key for key in unused if not key.startswith('roi_head.')] == []  # needs real values


def check_multiply_adds(name, model, scope):
    sides = {224: 2, 384: 2} if scope == 'mmpretrain' else {512: 1}  # and digits
    listed = {x: LISTED[name]['Metadata'].get(f'Multiply-adds at {x}x{x} (G)') for x in sides}
    assert any(listed.values()) == (scope not in ('mmdet', 'mmengine'))
    for side, macs in listed.items():
        if macs:
            counted = measure_model(model.eval(), side, side)[-1][2] / 1e9
            assert f'{counted:.{sides[side]}f}' == f'{float(macs):.{sides[side]}f}'


@pytest.fixture(scope='module')
def scenes(tmp_path_factory):
    return write_few_scenes(tmp_path_factory.mktemp('data') / 'scenes')


def take_one_step(cfg, folder):
    """With one image to evaluate, and no checkpoint (up to a GB)."""
    shorten(cfg, folder, steps=1)
    cfg.val_dataloader.dataset.indices = 1
    cfg.default_hooks.checkpoint = None
    if cfg.default_scope == 'mmdet':
        cfg.train_dataloader.batch_size = 1
        # after one step nothing is certain
        test_cfg = cfg.model.test_cfg
        test_cfg.get('rcnn', test_cfg).score_thr = 0.0
    if 'teacher' in cfg.model:  # its weights would be downloaded
        classes = cfg.model.head.num_classes
        cfg.model.teacher = dict(model_name='test_resnet', num_classes=classes)


@pytest.mark.parametrize(
    'name',
    others_in_zoo(
        [x for x in (*DETECTORS_AND_SEGMENTORS, *CLASSIFIERS, *ROWS) if x not in LEARNED], TRAINED
    ),
)
def test_trains_and_evaluates(name, scenes, tmp_path):
    cfg = load_config(name)
    use_scenes(cfg, str(scenes))
    take_one_step(cfg, tmp_path)
    with fresh_mmengine():
        runner = Runner.from_cfg(cfg)
        runner.train()
    logged = runner.message_hub.log_scalars
    assert math.isfinite(logged['train/loss'].current())
    score = dict(mmseg='mIoU', mmdet='coco/bbox_mAP', mmpretrain='accuracy/top1')
    assert f'val/{score[cfg.default_scope]}' in logged
    assert 'val/coco/segm_mAP' in logged or not name.startswith('maskrcnn')


@pytest.mark.zoo
@pytest.mark.parametrize('name', LEARNED)
def test_learns(name, shared, tmp_path):
    """A minute of one core, from random weights, by --sample; on 32 scenes.

    Two seeds: box AP 17.0, 19.0 and mask AP 10.3, 11.4; mIoU 53.4, 54.8; top-1 71.9, 75.0.
    RoIAlign that reads channels-last maps as NCHW: the loss grows to 131, nothing is detected.
    A frozen head: mIoU 30.0; top-1 75.0, but a loss of 4.8 instead of 1.5.
    Validation with BGR for RGB: mask AP 5.6, 7.9 (box AP 12.3, 16.6 is not always outside of its
    band); mIoU 40.0, 43.3; top-1 62.5, 71.9, which is within the band of so few images.
    Means and deviations of BGR for RGB in validation: mIoU 51.7, 54.5, which no band can tell.
    """
    steps, batch_size, options, scores = LEARNED[name]
    cfg = load_config(name)
    use_scenes(cfg, str(shared / 'scenes'))
    shorten(cfg, tmp_path, steps)
    cfg.train_dataloader.batch_size = batch_size
    cfg.merge_from_dict({**options, 'param_scheduler.1.end': steps, 'randomness.seed': 0})
    cfg.default_hooks.checkpoint = None
    if cfg.default_scope == 'mmpretrain':  # its augmentation is for long trainings
        cfg.train_dataloader.dataset.pipeline = cfg.val_dataloader.dataset.pipeline
    with fresh_mmengine():
        runner = Runner.from_cfg(cfg)
        runner.train()
    for key, (score, distance) in scores.items():
        found = runner.message_hub.get_scalar(key).mean(30)  # of losses; there is one score
        assert found == pytest.approx(score, abs=distance), key

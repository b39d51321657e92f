"""What mim and the folders' READMEs say of the configs is true."""

import sys

import pytest
import torch
import yaml
from helpers import CONFIGS
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmbixt.checkpoints.sources import SOURCES

sys.path.insert(0, str(CONFIGS.parent / 'tools/analysis'))
from get_flops import measure_config

FAMILIES = ['bixt', 'xcit', 'biformer', 'bisa_swin']


def read(family):
    return yaml.safe_load((CONFIGS / family / 'metafile.yml').read_text())


MODELS_LISTED = {model['Name']: model for family in FAMILIES for model in read(family)['Models']}


def test_index_lists_every_family():
    index = yaml.safe_load((CONFIGS.parent / 'model-index.yml').read_text())
    assert index['Import'] == [f'configs/{family}/metafile.yml' for family in FAMILIES]


@pytest.mark.parametrize('family', FAMILIES)
def test_every_config_is_listed_and_every_listed_file_is_there(family):
    meta = read(family)
    listed = [model['Config'] for model in meta['Models']]
    there = sorted(path.stem for path in (CONFIGS / family).glob('*.py'))
    assert listed == [f'configs/{family}/{name}.py' for name in there]
    assert [model['Name'] for model in meta['Models']] == there
    (collection,) = meta['Collections']
    assert {model['In Collection'] for model in meta['Models']} == {collection['Name']}
    for path in (collection['README'], collection['Code']['URL']):
        assert (CONFIGS.parent / path).is_file()


@pytest.mark.parametrize('name', MODELS_LISTED)
def test_figures_are_measured(name):
    model = MODELS_LISTED[name]
    meta = model['Metadata']
    cfg = Config.fromfile(CONFIGS.parent / model['Config'])
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        count = sum(p.numel() for p in MODELS.build(cfg.model).parameters())
    assert meta['Parameters'] == count
    assert meta['Batch Size'] == cfg.auto_scale_lr.base_batch_size
    loop = cfg.train_cfg
    assert meta.get('Iterations', meta.get('Epochs')) == loop.get(
        'max_iters', loop.get('max_epochs')
    )
    macs = '–'
    if cfg.default_scope == 'mmseg':
        macs = f'{measure_config(cfg, 512, 512)[-1][2] / 1e9:.1f}'
        assert str(meta['Multiply-adds at 512x512 (G)']) == macs
    readme = (CONFIGS.parent / model['Config']).parent / 'README.md'
    assert f'| `{name}` | {count:,} | {macs} |' in readme.read_text()


@pytest.mark.parametrize('name', [n for n, model in MODELS_LISTED.items() if 'Weights' in model])
def test_weights_and_results_are_those_of_the_named_source(name):
    model = MODELS_LISTED[name]
    (source,) = [source for source in SOURCES.values() if source.url == model['Weights']]
    metrics = [pair for result in model['Results'] for pair in result['Metrics'].items()]
    assert source.figure == ', '.join(f'{metric} {value}' for metric, value in metrics)
    assert f'`{source.name}`' in (CONFIGS / 'xcit/README.md').read_text()

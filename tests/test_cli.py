"""What all tools share: reading configs, options, errors without a traceback."""

import argparse
from pathlib import Path

import pytest
from helpers import CONFIGS
from running import NO_WORKERS, fresh_mmengine, write_few_scenes
from torch.utils.data import DataLoader

from mmbixt.cli import add_common_arguments, build_runner, load_config, named_settings, run
from mmbixt.config import ConfigError, read_config

NAME = 'semfpn_bixt_ti_ade20k'


def load(*arguments):
    parser = argparse.ArgumentParser()
    add_common_arguments(parser)
    return load_config(parser.parse_args(arguments), ())


@pytest.mark.parametrize('name', [NAME, f'{NAME}.py', f'mmbixt::bixt/{NAME}.py'])
def test_configs_by_name(name):
    cfg = load(name, '--cfg-options', 'train_dataloader.batch_size=3', 'env_cfg.b="[(1,2)]"')
    assert cfg.model.backbone.type == 'mmbixt.BiXT'
    assert cfg.work_dir == f'work_dirs/{NAME}'
    assert (cfg.train_dataloader.batch_size, cfg.env_cfg.b) == (3, [(1, 2)])


def test_unknown_configs():
    with pytest.raises(FileNotFoundError, match=r'Similar names: .*semfpn_bixt_ti_ade20k'):
        read_config('semfpn_bixt_ade20k')


def test_options_that_nothing_reads():
    with pytest.raises(ConfigError, match=r'Nothing reads the setting modle\..*: .*\bmodel\b'):
        load(NAME, '--cfg-options', 'modle.backbone.arch=small')
    load(NAME, '--cfg-options', 'custom_hooks.type=EMAHook', 'tta_model.type=SegTTAModel')


def test_processes_without_gpus_synchronise_no_norms(monkeypatch):
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    joined = []
    monkeypatch.setattr('torch.distributed.init_process_group', joined.append)
    cfg = load(NAME, '--launcher', 'pytorch')
    assert joined == ['gloo']
    assert 'sync_bn' not in cfg
    norms = [cfg.model.decode_head.norm_cfg, cfg.model.neck[0].norm_cfg]
    assert [norm.type for norm in norms] == ['BN', 'BN']


def test_the_work_dir_of_a_config_is_not_that_of_its_sample(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_few_scenes(tmp_path / 'data/sample', 1, 1)
    base = CONFIGS / f'bixt/{NAME}.py'
    Path('mine.py').write_text(f"_base_ = '{base}'\nwork_dir = 'real'")
    assert load('mine.py').work_dir == 'real'
    assert load('mine.py', '--sample').work_dir == 'work_dirs/mine_sample'
    assert load('mine.py', '--sample', '--work-dir', 'x').work_dir == 'x'


@pytest.mark.parametrize(
    ('option', 'similar'),
    [
        ('model.backbone.init_cfgg=None', r'init_cfg\b'),  # an argument of a base class
        ('model.decode_head.loss_decode.loss_wait=1', 'loss_weight'),
        ('train_dataloader.batchsize=2', 'batch_size'),
        ('train_dataloader.dataset.pipeline.3.scal=2', 'scale'),
    ],
)
def test_settings_that_a_class_does_not_read(option, similar, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_few_scenes(tmp_path / 'data/sample', 1, 1)
    cfg = load(NAME, '--sample', '--cfg-options', option, *NO_WORKERS)
    name = option.partition('=')[0].replace('.', r'\.')
    with (
        fresh_mmengine(),
        pytest.raises(ConfigError, match=rf'the setting {name}\. Similar names: .*{similar}'),
        named_settings(cfg),
    ):
        build_runner(cfg).train()


def test_an_error_in_a_worker_has_no_traceback():
    def fail(_):
        raise ConfigError('a bad image')

    loader = DataLoader([0], num_workers=1, collate_fn=fail, multiprocessing_context='fork')
    with pytest.raises(SystemExit, match=r'^ConfigError: a bad image$'):
        run(lambda: next(iter(loader)))


def test_a_misspelt_setting(tmp_path):
    file = tmp_path / 'mine.py'
    file.write_text(f"_base_ = '{CONFIGS}/bixt/{NAME}.py'\noptim_wraper = dict()")
    with pytest.raises(ConfigError, match=r'optim_wraper\. Did you mean optim_wrapper\?'):
        load(str(file))

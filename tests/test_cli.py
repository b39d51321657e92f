"""What all tools share: configs by name, options, settings that nothing reads."""

import argparse
from pathlib import Path

import pytest
from helpers import CONFIGS
from mmseg.models import CrossEntropyLoss
from running import write_few_scenes

from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.config import ConfigError

NAME = 'semfpn_bixt_ti_ade20k'


def load(*arguments):
    parser = argparse.ArgumentParser()
    add_common_arguments(parser)
    return load_config(parser.parse_args(arguments), ())


@pytest.mark.parametrize('name', [NAME, f'{NAME}.py', f'mmbixt::bixt/{NAME}.py'])
def test_configs_by_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(NAME).mkdir()  # which does not hide the config
    cfg = load(name, '--cfg-options', 'train_dataloader.batch_size=3', 'env_cfg.b="[(1,2)]"')
    assert cfg.model.backbone.type == 'mmbixt.BiXT'
    assert cfg.work_dir == f'work_dirs/{NAME}'
    assert (cfg.train_dataloader.batch_size, cfg.env_cfg.b) == (3, [(1, 2)])


def test_settings_that_nothing_reads(tmp_path):
    """On the command line and, if they are similar to others, in a file."""
    with pytest.raises(ConfigError, match=r'Nothing reads the setting modle\. Did you mean model'):
        load(NAME, '--cfg-options', 'modle.backbone.arch=small')
    with pytest.raises(ConfigError, match=r'crop_size: it is a variable of the file'):
        load(NAME, '--cfg-options', 'crop_size=(64,64)')
    more = 'compile=True', 'find_unused_parameters=True', 'sync_bn=torch', 'mine=1'
    load(NAME, '--cfg-options', 'custom_hooks.type=EMAHook', 'tta_model.type=SegTTAModel', *more)
    file = tmp_path / 'mine.py'
    file.write_text(f"_base_ = '{CONFIGS}/bixt/{NAME}.py'\noptim_wraper = dict()")
    with pytest.raises(ConfigError, match=r'optim_wraper\. Did you mean optim_wrapper\?'):
        load(str(file))


def test_the_work_dir_of_a_config_is_not_that_of_its_sample(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_few_scenes(tmp_path / 'data/sample', 1, 1)
    base = CONFIGS / f'bixt/{NAME}.py'
    Path('mine.py').write_text(f"_base_ = '{base}'\nwork_dir = 'real'")
    assert load('mine.py').work_dir == 'real'
    assert load('mine.py', '--sample').work_dir == 'work_dirs/mine_sample'
    assert load('mine.py', '--sample', '--work-dir', 'x').work_dir == 'x'


def test_a_misspelt_setting_is_one_line():
    with pytest.raises(SystemExit, match=r"^TypeError: .* keyword argument 'loss_wait'$"):
        run(lambda: CrossEntropyLoss(loss_wait=1))

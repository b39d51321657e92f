import argparse
import runpy
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from running import FirstClass, training

from mmbixt.check.config import ConfigError
from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.cli import (
    LoopStartHook,
    add_common_arguments,
    check_framework,
    doubtful_options,
    load_config,
    read_config,
    run,
    run_loop,
)
from mmbixt.datasets.problems import BadSampleError

ROOT = Path(__file__).parents[1]

CONFIG = Config(
    dict(
        train_cfg=dict(max_iters=10), model=dict(backbone=dict(arch='tiny')), hooks=[dict(type='A')]
    )
)
ALMOST_THERE = {
    'train_cfg.max_iter': 'max_iters',
    'modle.backbone.arch': 'model',
    'hooks.0.typ': 'type',
}
OTHERS = ['train_cfg.max_iters', 'hooks.0.type', 'hooks.1.typ', 'model.backbone.drop', 'a.b.c']


def test_misspelt_options_are_reported():
    assert doubtful_options(CONFIG, dict.fromkeys(OTHERS, 1)) == []
    notes = doubtful_options(CONFIG, dict.fromkeys(ALMOST_THERE, 1))
    for note, (option, similar) in zip(notes, ALMOST_THERE.items(), strict=True):
        assert note.startswith(f'--cfg-options {option}: ')
        assert f'which has {similar}.' in note


def load(*arguments, splits=()):
    """The config of a command line, which is not checked."""
    parser = argparse.ArgumentParser()
    add_common_arguments(parser)
    return load_config(parser.parse_args([*arguments, '--unchecked']), splits)


@pytest.mark.parametrize(
    ('option', 'said'),
    [
        ('max_iters', "'max_iters' is not KEY=VALUE"),
        ('param_scheduler.9.end=3', '--cfg-options param_scheduler.9.end: Index 9 exceeds'),
        ('model.backbone.arch.depth=3', '--cfg-options model.backbone.arch.depth: arch='),
    ],
)
def test_options_that_cannot_be_set(option, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(lambda: load('semfpn_bixt_ti_ade20k', '--cfg-options', option))
    assert said in f'{stopped.value.code} {capsys.readouterr().err}'


def test_weights_may_be_given_where_a_config_has_none():
    options = 'model.backbone.init_cfg.checkpoint=x.pth', 'model.backbone.init_cfg.prefix=a.'
    cfg = load('bisa_swin_t_cifar100', '--cfg-options', *options)
    assert cfg.model.backbone.init_cfg == dict(type='Pretrained', checkpoint='x.pth', prefix='a.')


@pytest.fixture
def make_runner(tmp_path, request):
    checkpoint = dict(type='CheckpointHook', interval=1, by_epoch=False)
    return partial(
        Runner,
        FirstClass(),
        str(tmp_path),
        default_hooks=dict(checkpoint=checkpoint),
        experiment_name=request.node.name,
        **training([dict(inputs=torch.zeros(1))] * 4),
    )


def test_interruptions_have_no_traceback_and_unexpected_errors_keep_theirs(capsys):
    with pytest.raises(SystemExit, match='130'):
        run(Mock(side_effect=KeyboardInterrupt))
    assert capsys.readouterr().err == 'Interrupted.\n'
    with pytest.raises(OSError, match='No space left'):  # it names no file
        run(Mock(side_effect=OSError(28, 'No space left on device')))
    with pytest.raises(SystemExit, match=r"No space left on device: 'x\.onnx'"):
        run(Mock(side_effect=OSError(28, 'No space left on device', 'x.onnx')))


@pytest.mark.parametrize(
    ('launcher', 'gpu', 'kind'),
    [('none', False, 'BN'), ('none', True, 'BN'), ('pytorch', True, 'SyncBN')],
)
def test_norms_are_synchronised_only_over_gpus(launcher, gpu, kind, monkeypatch, capsys):
    monkeypatch.setattr('torch.cuda.is_available', lambda: gpu)
    model = load('semfpn_xcit_s12_p16_ade20k', '--launcher', launcher, splits=('train',)).model
    assert {model.neck[0].norm_cfg.type, model.decode_head.norm_cfg.type} == {kind}
    assert ('BN instead of SyncBN' in capsys.readouterr().out) == (kind == 'BN')


def test_errors_in_the_middle_of_a_run_are_logged_with_their_traceback(make_runner, tmp_path):
    runner = make_runner()
    (tmp_path / 'iter_4.pth').mkdir()  # where a checkpoint is to be written
    with pytest.raises(SystemExit) as end:
        run(lambda: run_loop(runner, runner.train))
    assert end.value.code == 1
    (log,) = tmp_path.glob('*/*.log')
    assert 'Traceback (most recent call last)' in log.read_text()
    assert 'IsADirectoryError' in log.read_text().splitlines()[-1]


def test_bad_data_are_logged_without_traceback(make_runner, tmp_path):
    """That of a loader's worker is in the message, as torch makes it."""
    runner = make_runner()
    error = BadSampleError('Original Traceback\n  File ...\nBadSampleError: x.png: an empty file')
    runner.model.train_step = Mock(side_effect=error)
    with pytest.raises(SystemExit):
        run(lambda: run_loop(runner, runner.train))
    (log,) = tmp_path.glob('*/*.log')
    assert 'The run was stopped: x.png: an empty file' in log.read_text().splitlines()[-1]
    assert 'Traceback' not in log.read_text()


def test_a_full_disk_during_a_run_is_an_error_of_one_line(make_runner, tmp_path):
    runner = make_runner()
    runner.model.train_step = Mock(side_effect=OSError(28, 'No space left on device'))
    with pytest.raises(SystemExit, match=f'No space left on device, while a file in {tmp_path}'):
        run(lambda: run_loop(runner, runner.train))


def test_an_interruption_that_a_library_hides(make_runner):
    def prepare(*_, **options):
        try:
            raise KeyboardInterrupt
        except BaseException:
            raise SyntaxError('Failed to format the config file')  # noqa: B904, as mmengine does

    runner = make_runner()
    runner.model.train_step = prepare
    with pytest.raises(SystemExit) as end:
        run(lambda: run_loop(runner, runner.train))
    assert end.value.code == 130


def test_a_complete_run_that_is_resumed_says_so(make_runner, tmp_path):
    make_runner().train()
    runner = make_runner(load_from=str(tmp_path / 'iter_4.pth'), resume=True)
    run_loop(runner, runner.train)
    text = 'The run is complete: the checkpoint is of iteration 4, and training ends after 4.'
    assert any(text in log.read_text() for log in tmp_path.glob('*/*.log'))


@pytest.mark.parametrize(('done', 'is_due'), [(8, True), (9, False), (3, False), (10, True)])
def test_a_resumed_run_says_which_validation_is_not_repeated(done, is_due):
    loop = Mock(iter=done, max_iters=10, val_interval=4, val_begin=4)
    runner = Mock(train_loop=loop, _resume=True, _load_from='mine.pth')
    LoopStartHook().before_train(runner)
    said = ''.join(call.args[0] for call in runner.logger.info.call_args_list)
    assert (f'before the validation of iteration {done}. ' in said) == is_due
    assert ('evaluate mine.pth by tools/test.py' in said) == is_due


def test_errors_before_the_first_step_are_one_line(make_runner, tmp_path):
    runner = make_runner(load_from=str(tmp_path / 'nowhere.pth'))
    with pytest.raises(SystemExit, match=r'^FileNotFoundError: .*nowhere\.pth'):
        run(lambda: run_loop(runner, runner.train))
    runner = make_runner()
    runner.model.train = Mock(side_effect=CheckpointMismatchError('no such neck'))
    with pytest.raises(SystemExit, match=r'^CheckpointMismatchError: no such neck$'):
        run(lambda: run_loop(runner, runner.train))


def test_a_framework_that_cannot_be_imported_is_an_error_of_one_line(monkeypatch):
    """As mmpretrain beside transformers 5; once more, it says that its components are there."""
    for error in (TypeError('NoneType takes no arguments'), KeyError('already registered')):
        monkeypatch.setattr('mmbixt.frameworks.import_module', Mock(side_effect=error))
        with pytest.raises(
            SystemExit, match=r'mine\.py needs mmpretrain, .*(transformers 5|already)'
        ):
            check_framework(Config(dict(default_scope='mmpretrain')), 'mine.py')


def test_resume_is_advised_where_there_is_a_checkpoint(make_runner, tmp_path, capsys):
    advise = runpy.run_path(str(ROOT / 'tools/train.py'))['print_resume_advice']
    runner = make_runner()
    advise(runner)
    assert '--resume' not in capsys.readouterr().out
    runner.train()
    capsys.readouterr()
    advise(runner)
    message = f'To resume from {tmp_path}/iter_4.pth: the same command with --resume.\n'
    assert capsys.readouterr().out == message


def test_files_that_are_no_config_or_do_not_fit_their_base(tmp_path):
    (tmp_path / 'base.py').write_text('model = dict(init_cfg=None)')
    child = tmp_path / 'child.py'
    child.write_text("_base_ = 'base.py'\nmodel = dict(init_cfg=dict(type='Pretrained'))")
    with pytest.raises(SystemExit, match=r'^ConfigError: \S*child\.py: .*_delete_=True'):
        run(lambda: read_config(str(child)))
    with pytest.raises(ConfigError, match='is no config, but a checkpoint'):
        read_config('model.pth')


def test_a_config_in_its_work_dir_is_kept(tmp_path):
    """In Python's own syntax, too, whose imports are written with it."""
    (tmp_path / 'base.py').write_text('from collections import OrderedDict\nkind = OrderedDict\n')
    file = tmp_path / 'mine.py'
    text = 'from mmengine.config import read_base\nwith read_base():\n    from .base import *\n'
    file.write_text(text)
    for name in ('mine_run', 'mine_run1'):
        cfg = load(str(file), '--work-dir', str(tmp_path))
        assert cfg.filename == str(tmp_path / f'{name}.py')
        cfg.dump(cfg.filename)  # as mmengine does
        assert read_config(cfg.filename).kind == 'collections.OrderedDict'
    assert file.read_text() == text

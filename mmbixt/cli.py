"""Functions that all tools use."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from copy import copy
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from mmengine.config import Config, ConfigDict, DictAction
from mmengine.dist import init_dist, is_distributed, is_main_process
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from mmbixt.check.config import ConfigError, check_config
from mmbixt.checkpoints.errors import CheckpointError, CheckpointMismatchError
from mmbixt.checkpoints.loader import TRUST
from mmbixt.checkpoints.sources import near_matches
from mmbixt.config import all_dicts, type_name
from mmbixt.datasets.problems import BadSampleError
from mmbixt.files import FULL
from mmbixt.frameworks import INSTALL, import_problem, missing_framework
from mmbixt.sample.sample_config import use_sample_data

# in an installed package the files themselves, in a checkout a link to its configs/
CONFIGS = Path(__file__).parent / '.mim/configs'


class Options(DictAction):
    """``--cfg-options``: mmengine's, with an error of argparse for what is no KEY=VALUE."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        for value in values:
            if '=' not in value:
                raise argparse.ArgumentError(self, f'{value!r} is not KEY=VALUE')
        super().__call__(parser, namespace, values, option_string)


def add_common_arguments(
    parser: argparse.ArgumentParser, frameworks: str = 'mmseg, mmdet or mmpretrain'
) -> None:
    parser.add_argument(
        'config',
        help=f'a config of {frameworks}: a file, PACKAGE::PATH of an installed package, '
        'or the name of one of our configs',
    )
    parser.add_argument(
        '--work-dir',
        help='folder of logs and results (default: work_dirs/NAME_OF_THE_CONFIG, or '
        'work_dirs/NAME_OF_THE_CONFIG_sample with --sample)',
    )
    parser.add_argument(
        '--sample',
        action='store_true',
        help='run the config on generated scenes, with small images and few iterations; changes of '
        'the config are printed',
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=Options,
        metavar='KEY=VALUE',
        help='change settings of the config, for example train_dataloader.batch_size=2 '
        'model.backbone.num_latents=128; quote lists: key="[(a,b),(c,d)]"',
    )
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='how several processes were started; tools/dist_*.sh and tools/slurm_*.sh set it',
    )
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='also read checkpoints that contain more than data; their code is executed',
    )
    parser.add_argument(
        '--unchecked',
        action='store_true',
        help='skip the check of config and data (tools/check_config.py)',
    )
    # torchrun sets the variable, torch.distributed.launch passes one of these
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)


def read_config(path: str) -> Config:
    """A config from a file, from a package (``mmseg::swin/...py``), or one of ours by its name."""
    if Path(path).suffix in ('.pth', '.pt', '.bin', '.safetensors'):
        raise ConfigError(f'{path} is no config, but a checkpoint: give the config first.')
    if '::' in path:
        return Config.fromstring(f'_base_ = {path!r}', '.py')
    if not Path(path).exists():
        ours = {file.stem: file for file in CONFIGS.glob('[!_]*/*.py')}
        if (name := path.removesuffix('.py')) not in ours:
            files = [str(file) for file in Path(path).parent.glob('*.py')]
            near = near_matches(path, files) or near_matches(Path(name).name, ours)
            raise FileNotFoundError(
                f'There is no file {path}, and no config of ours with this name.{near}'
            )
        path = str(ours[name])
    try:
        return Config.fromfile(path)
    except TypeError as error:  # a dict for a value that is no dict in the base config
        if 'cannot inherit from base' not in str(error):
            raise
        text = f'{path}: {error} To do so, write it inside of this dict: dict(_delete_=True, ...).'
        raise ConfigError(text) from error


def load_config(args: argparse.Namespace, splits: tuple[str, ...]) -> Config:
    """The config with the options of the command line, checked together with its data."""
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    if args.trust_checkpoint:
        os.environ[TRUST] = '1'
    cfg = read_config(args.config)
    check_framework(cfg, args.config)
    messages = _use_sample(cfg, args, splits) if args.sample else []
    if args.cfg_options:
        messages += _set_options(cfg, args.cfg_options)
    if messages and os.environ.get('RANK', '0') == '0':
        print(*messages, sep='\n', flush=True)
    name = Path(args.config).stem + ('_sample' if args.sample else '')
    cfg.launcher = args.launcher
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or os.path.join('work_dirs', name)
    cfg = _keep_file(cfg)
    if not torch.cuda.is_available() and args.launcher != 'none':
        _join_without_gpus(cfg)
    if not torch.cuda.is_available() or args.launcher == 'none':
        _synchronise_no_norms(cfg)
    if splits and not args.unchecked:  # a tool that only uses a backbone needs no data or heads
        checked = copy(cfg)
        resumes = cfg.get('resume') or getattr(args, 'resume', None)
        if resumes or getattr(args, 'checkpoint', None):  # it has all weights
            checked.load_from, checked.model = None, _without_initial_weights(cfg.get('model'))
        for note in check_config(checked, splits, args.config):
            if is_main_process():
                print(f'Note: {note}', flush=True)
    return cfg


def _without_initial_weights(config: Any) -> Any:
    """A model without ``init_cfg``, but for adapters, whose checkpoints have only themselves."""
    if isinstance(config, list | tuple):
        return type(config)(map(_without_initial_weights, config))
    if not isinstance(config, dict) or type_name(config).endswith('LoRAModel'):
        return config
    kept = {key: x for key, x in config.items() if key != 'init_cfg'}
    return type(config)({key: _without_initial_weights(part) for key, part in kept.items()})


def _use_sample(cfg: Config, args: argparse.Namespace, splits: tuple[str, ...]) -> list[str]:
    """Run a config on generated scenes; returns the message about what this changes."""
    try:
        changes = use_sample_data(cfg)
    except OSError as error:  # a full disk, no permission
        sys.exit(f'--sample: {error}')
    if 'train' not in splits:
        changes = [x for x in changes if not x.startswith(('schedule', 'weights', 'average'))]
    if args.cfg_options:
        changes += [f'and after it --cfg-options: {", ".join(args.cfg_options)}']
    return ['\n  '.join(['--sample changes the config:', *changes])]


def _set_options(cfg: Config, options: Mapping[str, Any]) -> list[str]:
    """Change a config by ``--cfg-options``; returns messages about doubtful ones."""
    messages = doubtful_options(cfg, options)
    try:
        _restore_pretrained(cfg, options)
        cfg.merge_from_dict(options)
    # no such index; a value where the key needs a dict
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f'--cfg-options {", ".join(options)}: {error.args[0]}') from error
    return messages


def _keep_file(cfg: Config) -> Config:
    """The config under another name, if its file lies in the work dir.

    mmengine would replace the file, which may have comments and ``_base_``, by the whole config.
    """
    written = Path(cfg.work_dir, Path(cfg.filename or '').name)
    if not (cfg.filename and written.exists() and written.samefile(cfg.filename)):
        return cfg
    names = (written.with_stem(f'{written.stem}_run{i or ""}') for i in count())
    cfg = copy(cfg)
    # Config has no setter for it, and a new Config would lose what Python's own syntax imports
    object.__setattr__(cfg, '_filename', str(next(x for x in names if not x.exists())))
    return cfg


def _join_without_gpus(cfg: Config) -> None:
    """Join a process group on CPUs: mmengine's launchers would set a GPU for each process.

    mmengine keeps a process group that exists.
    """
    if not is_distributed():
        with mock.patch.object(torch.cuda, 'set_device'):
            init_dist(cfg.launcher, 'gloo')
    cfg.model_wrapper_cfg = dict(type='MMDistributedDataParallel', device_ids=None)


def _synchronise_no_norms(cfg: Config) -> None:
    """Batch norms without SyncBN, which only several GPUs can use; the weights are the same."""
    nodes = all_dicts(cfg.get('model'))
    synchronised = [node for node in nodes if node.get('type') in ('SyncBN', 'MMSyncBN')]
    for node in synchronised:
        node['type'] = 'BN'
    if ((cfg.pop('sync_bn', None) and is_distributed()) or synchronised) and is_main_process():
        print(
            'BN instead of SyncBN: batch norms are synchronised only over several GPUs.', flush=True
        )


def check_framework(cfg: Config, path: str) -> None:
    """Exit with installation advice if the framework of a config cannot be imported."""
    framework = cfg.get('default_scope')
    problem = import_problem(f'{framework}.models') if framework in INSTALL else None
    if problem is not None:
        sys.exit(str(missing_framework(path, framework, problem)))


def doubtful_options(cfg: Config, options: Mapping[str, Any]) -> list[str]:
    """Messages about keys in ``--cfg-options`` that are new, but similar to one of the config.

    New keys are allowed: many settings have defaults, which configs do not name.
    """
    notes = []
    for option in options:
        there: Any = dict(cfg.items())
        for key in option.split('.'):
            if isinstance(there, list | tuple):
                there = {str(i): part for i, part in enumerate(there)}
            if not isinstance(there, Mapping):
                break
            if key not in there:
                if near := get_close_matches(key, there, n=3, cutoff=0.8):
                    notes.append(
                        f'--cfg-options {option}: {key} is new to the config, which has '
                        f'{", ".join(near)}. The new key is set.'
                    )
                break
            there = there[key]
    return notes


def _restore_pretrained(cfg: Config, options: Mapping[str, Any]) -> None:
    """Make the ``init_cfg`` of options where there is none, or None as after --sample."""
    for option in options:
        place, found, _ = option.partition('.init_cfg.')
        part: Any = cfg
        for key in place.split('.') if found else ():
            part = part[int(key)] if isinstance(part, list) else part.get(key, {})
        if found and part.get('init_cfg') is None:
            part['init_cfg'] = ConfigDict(type='Pretrained')


class LoopStartHook(Hook):
    """Records that the loop of a run has started: data, model and checkpoint are loaded.

    It also says where a resumed training has nothing left to do, at which mmengine ends without a
    word, and which validation is not repeated.
    """

    priority = 'LOWEST'  # after all other hooks

    def __init__(self) -> None:
        self.started = False

    def _start(self, runner: Runner) -> None:
        self.started = True

    before_val = before_test = _start

    def before_train(self, runner: Runner) -> None:
        self.started = True
        loop, what = runner.train_loop, 'iteration'
        done, end, is_whole = loop.iter, loop.max_iters, True
        if isinstance(loop, EpochBasedTrainLoop):
            done, end, what = loop.epoch, loop.max_epochs, 'epoch'
            is_whole = loop.iter == done * len(loop.dataloader)
        if 0 < end <= done:
            text = f'The run is complete: the checkpoint is of {what} {done:,}, and training ends'
            runner.logger.info(f'{text} after {end:,}.')
        if not (runner._resume and done and is_whole and runner.val_loop is not None):
            return
        interval = getattr(loop, 'val_interval', 0)  # loops of other packages may have none
        is_due = interval and done >= getattr(loop, 'val_begin', 1)
        is_due = is_due and (done % interval == 0 or done == end)
        if is_due and not Path(str(runner._load_from)).name.startswith('best_'):
            runner.logger.info(
                f'The checkpoint was written before the validation of {what} {done:,}. If that was '
                f'interrupted, it is not repeated: evaluate {runner._load_from} by tools/test.py.'
            )


def run_loop(runner: Runner, loop: Callable[[], Any]) -> None:
    """Call ``runner.train`` or ``runner.test``, and log the traceback of an error.

    Errors before the first step are raised, because :func:`run` may explain them; so are errors
    about a checkpoint of another model, which may occur when the model is first used.
    """
    hook = LoopStartHook()
    runner.register_hook(hook)
    try:
        loop()
    except CheckpointMismatchError:
        raise
    except Exception as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # mmengine's yapf makes others of it
            raise KeyboardInterrupt from error
        if not hook.started:
            raise
        if isinstance(error, OSError) and error.errno in FULL:  # the log cannot be written either
            where = error.filename or f'a file in {runner.work_dir}'
            sys.exit(f'The run was stopped: {error.strerror}, while {where} was written.')
        if isinstance(error, DATA_ERRORS):
            runner.logger.error(f'The run was stopped: {error}')
        else:
            runner.logger.exception('The run was stopped by an error.')  # also on the screen
        sys.exit(1)


# errors of SampleCheckHook and FiniteLossHook
DATA_ERRORS = (BadSampleError, FloatingPointError)
# errors that users can solve
USER_ERRORS = (
    *(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError),
    *(BadSampleError, ConfigError, CheckpointError),
)


def run(main: Callable[[], None]) -> None:
    """Run a tool; errors that users can solve are shown without a traceback.

    :func:`run_loop` handles errors after the loop of a runner has started. torchrun's report of
    a failed process, which is printed last, has its error, too.
    """
    try:
        main()
    except KeyboardInterrupt:
        print('Interrupted.', file=sys.stderr)
        sys.exit(130)
    except SystemExit as error:
        if isinstance(error.code, str):
            get_error_handler().record_exception(error)
        raise
    except USER_ERRORS as error:
        get_error_handler().record_exception(error)
        sys.exit(f'{type(error).__name__}: {error}')
    except OSError as error:
        if error.errno not in FULL or not error.filename:
            raise
        get_error_handler().record_exception(error)
        sys.exit(f'{type(error).__name__}: {error}')

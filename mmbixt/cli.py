"""What the tools share: arguments, and errors without a traceback."""

import argparse
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib import import_module
from logging import LogRecord
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, DictAction
from mmengine.logging import MMLogger
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import distributed

from mmbixt.config import ConfigError, all_dicts, read_config, type_name
from mmbixt.errors import UserError
from mmbixt.frameworks import IMPORT_ERRORS, missing_framework
from mmbixt.registry import FRAMEWORKS
from mmbixt.scenes.short_runs import use_few_steps, use_scenes

# what mmengine's runners and the tools read in a config; a file has other names for its own use
READ = {
    *inspect.signature(Runner.__init__).parameters,
    *('runner_type', 'strategy', 'sync_bn', 'find_unused_parameters', 'model_wrapper_cfg'),
    *('compile', 'activation_checkpointing', 'efficient_conv_bn_eval'),
    *('init_weights_for_test_or_val', 'tta_model', 'tta_pipeline'),
}
# errors whose message tells users what to do
USER_ERRORS = (
    *(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError),
    *(UserError, FloatingPointError),
)
# the same in errors of torch, and of Python about a misspelt setting
SENTENCES = 'NVIDIA driver', 'not compiled with CUDA', '__init__() got an unexpected keyword'


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        'config', help='a file, PACKAGE::PATH of an installed package, or the name of a config'
    )
    parser.add_argument(
        '--work-dir', help='folder of logs and results (default: work_dirs/NAME_OF_THE_CONFIG)'
    )
    parser.add_argument(
        '--sample',
        action='store_true',
        help='run the config on generated scenes, with small images and few iterations',
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
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
    # torchrun sets the variable, torch.distributed.launch passes one of these
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)


def split_arguments() -> tuple[list[str], list[str]]:
    """The arguments of the command line before and after --."""
    end = sys.argv.index('--') if '--' in sys.argv else len(sys.argv)
    return sys.argv[1:end], sys.argv[end + 1 :]


def load_config(args: argparse.Namespace, steps: int | None = None) -> Config:
    """The config with the options of the command line.

    Args:
        args: of :func:`add_common_arguments`.
        steps: of ``--fast-dev-run``.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = read_config(args.config)
    framework = cfg.get('default_scope')
    if framework in FRAMEWORKS:
        try:
            import_module(f'{framework}.models')
        except IMPORT_ERRORS as error:
            raise missing_framework(args.config, framework, error) from error
    options = args.cfg_options or {}
    changes = ['The config is changed:'] if args.sample or steps else []
    if args.sample:
        changes += use_scenes(cfg, options=options)
        cfg.work_dir = None  # that of the real run
    if steps:
        changes += use_few_steps(cfg, steps, not args.sample, options)
    if changes and os.environ.get('RANK', '0') == '0':
        print(*changes, sep='\n  ', flush=True)
    check_names(cfg, options)
    cfg.merge_from_dict(options)
    cfg.launcher = args.launcher
    name = Path(args.config).stem + ('_sample' if args.sample else '')
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or os.path.join('work_dirs', name)
    if args.launcher != 'none' and not torch.cuda.is_available():
        _join_on_cpus(cfg)
    return cfg


def check_names(cfg: Config, options: Iterable[str]) -> None:
    """Refuse variables of the file as options, and names that are almost those of settings."""
    changed = {option.partition('.')[0] for option in options}
    for name in sorted({*cfg, *changed} - READ):
        if name in changed and name in cfg:
            raise ConfigError(
                f'--cfg-options {name}: it is a variable of the file, without effect once the file '
                'is read. Change it in a copy of the file, or give the settings that use it.'
            )
        # mmengine takes any name; those of variables in files are often similar
        similar = get_close_matches(name, READ, 1, cutoff=0.6 if name in changed else 0.92)
        if similar:
            raise ConfigError(f'Nothing reads the setting {name}. Did you mean {similar[0]}?')


def _join_on_cpus(cfg: Config) -> None:
    """Join a process group without GPUs, which mmengine's launchers would select.

    mmengine keeps a process group that exists. Batch norms are synchronised on GPUs only.
    """
    for node in all_dicts(cfg.get('model')):
        if type_name(node) == 'SyncBN':
            node.type = 'BN'
    if not distributed.is_initialized():
        distributed.init_process_group('gloo')
    cfg.model_wrapper_cfg = dict(type='MMDistributedDataParallel', device_ids=None)
    cfg.pop('sync_bn', None)


def build_runner(cfg: Config) -> Runner:
    """mmengine's runner, with less on the terminal."""
    kind = RUNNERS.get(cfg.get('runner_type', 'Runner'))

    class ToolRunner(kind):
        def build_logger(self, *args: Any, **options: Any) -> MMLogger:
            logger = super().build_logger(*args, **options)
            logger.handlers[0].addFilter(HideSetUp())  # the first is the terminal's
            return logger

    return ToolRunner.from_cfg(cfg)


class HideSetUp:
    """Leaves texts of several lines to the log file, until a file is loaded or an iteration."""

    is_over = False

    def __call__(self, record: LogRecord) -> bool:
        text = record.getMessage()
        self.is_over |= text.startswith(('Load checkpoint', 'Iter(', 'Epoch('))
        return self.is_over or record.levelno > logging.INFO or '\n' not in text


def run(main: Callable[[], None]) -> None:
    """Run a tool; errors that users can solve are shown without a traceback."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        name = type(error).__name__
        if not isinstance(error, USER_ERRORS) and not any(x in str(error) for x in SENTENCES):
            raise
        text = str(error).rpartition(f'{name}: ')[2].rstrip()  # of a data loader, after a traceback
        sys.stdout.flush()  # before the error, also in a file
        sys.exit(f'{"error" if type(error) is UserError else name}: {text}')

"""Train a model: mmengine's runner, for configs of mmseg, mmdet and mmpretrain."""

import argparse
import re
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from torch import nn

from mmbixt.check.model import missing_file
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import shorten
from mmbixt.checkpoints.written import written_checkpoints
from mmbixt.cli import add_common_arguments, load_config, run, run_loop
from mmbixt.config import type_name, within
from mmbixt.engine import ExactResumeHook
from mmbixt.engine.layer_decay import table
from mmbixt.engine.other_runs import KeepOtherRunsHook
from mmbixt.engine.unwrapped import unwrapped
from mmbixt.frameworks import PACKAGES

OF_A_WEIGHT = re.compile(r'^paramwise_options -- | is skipped since its requires_grad=')
# types of parts that read data in the usual way
STOCK = {
    'loop': ('None', 'IterBasedTrainLoop', 'EpochBasedTrainLoop'),  # None: it has by_epoch
    'sampler': ('DefaultSampler', 'InfiniteSampler'),
    'batch_sampler': ('None', 'AspectRatioBatchSampler'),
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Train a segmentor (mmseg config), a detector (mmdet) or a classifier '
        '(mmpretrain).',
        epilog='Example: python tools/train.py configs/bixt/semfpn_bixt_ti_ade20k.py --sample',
    )
    add_common_arguments(parser)
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='CHECKPOINT',
        help='resume from a checkpoint, by default from the latest in the work dir',
    )
    parser.add_argument(
        '--amp',
        action='store_true',
        help='automatic mixed precision: on a GPU in float16 (bfloat16: --cfg-options '
        'optim_wrapper.dtype=bfloat16), without one in bfloat16',
    )
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help='scale the learning rate from the batch size of the config to the actual one (of all '
        'GPUs together)',
    )
    return parser.parse_args()


def apply_options(cfg: Config, args: argparse.Namespace) -> list[str]:
    """Change the config as the command line says. Returns messages for the log of the run."""
    if args.amp:
        cfg.optim_wrapper.update(type='AmpOptimWrapper', loss_scale='dynamic')
    if type_name(cfg.optim_wrapper) == 'AmpOptimWrapper' and get_device() == 'cpu':
        use_bfloat16(cfg)
    if args.auto_scale_lr:
        if 'base_batch_size' not in within(cfg, 'auto_scale_lr'):
            raise SystemExit(
                f'--auto-scale-lr: {args.config} does not name the batch size of its learning '
                'rate; set auto_scale_lr=dict(base_batch_size=...).'
            )
        cfg.auto_scale_lr.enable = True
    if cfg.get('resume') and not args.resume:  # in the config
        args.resume = cfg.get('load_from') or 'auto'
    file, messages, work_dir = args.resume, [], Path(cfg.work_dir)
    is_here = file and Path(file).parent.resolve() == work_dir.resolve()
    if file == 'auto':
        file, messages = latest_whole(work_dir, cfg)
        cfg.resume = False  # unless there is one
    elif not is_here and (old := sorted(x.name for x in work_dir.glob('*_*.pth'))):
        messages.append(
            f'{work_dir} has checkpoints of another run ({shorten(old, 3)}), which this run may '
            'replace. To continue the other run: --resume.'
        )
    if file:  # else the weights of load_from, if the config has it
        cfg.resume, cfg.load_from = True, file
        if args.resume != 'auto' and not has_training_state(args.resume):
            raise SystemExit(
                f'--resume: {args.resume} has weights, but no training state. To start from the '
                f'weights: --cfg-options resume=False load_from={args.resume}'
            )
    return messages


def has_training_state(path: str) -> bool:
    """mmengine's best_*.pth have none of the optimizer; others may be meant so."""
    content = load(path)
    return 'meta' in content and ('optimizer' in content or not Path(path).name.startswith('best_'))


def use_bfloat16(cfg: Config) -> None:
    """Mixed precision on a processor: mmengine's wrapper needs a GPU."""
    if "'RoIAlign'" in str(cfg.model):
        raise SystemExit(
            "--amp: without a GPU, mixed precision is in bfloat16, which mmcv's NMS and RoIAlign "
            'of detectors with two stages do not support.'
        )
    if cfg.optim_wrapper.pop('dtype', None) not in (None, 'bfloat16', torch.bfloat16):
        raise SystemExit(
            '--amp: without a GPU, mixed precision is in bfloat16; leave the dtype out.'
        )
    cfg.optim_wrapper.pop('loss_scale', None)
    cfg.optim_wrapper.type = 'mmbixt.BFloat16OptimWrapper'
    if is_main_process():
        print('Mixed precision without a GPU: in bfloat16, without a loss scale.', flush=True)


def latest_whole(work_dir: Path, cfg: Config) -> tuple[str | None, list[str]]:
    """The latest checkpoint of a work dir that is not damaged, and what is wrong with others.

    Without any checkpoint it is None.
    """
    messages = []
    note = work_dir / 'last_checkpoint'  # written by mmengine
    named = Path(note.read_text().strip() if note.is_file() else '.')
    if not named.exists() and not (work_dir / named.name).exists():  # the folder may have moved
        messages.append(f'--resume: {note} names {named}, which is missing.')
    written = False
    for path, problem in written_checkpoints(work_dir, cfg):
        if problem is None:
            return str(path), messages
        messages.append(f'--resume: {path} is empty or damaged ({problem}).')
        written = True
    if written:
        messages.append(
            f'--resume: {work_dir} has no complete checkpoint. To train from iteration 0, leave '
            '--resume out.'
        )
        raise SystemExit('\n'.join(messages))
    messages.append(f'--resume: {work_dir} has no checkpoint: training begins at iteration 0.')
    return None, messages


def print_resume_advice(runner: Runner) -> None:
    """After a stopped run, if it has written a checkpoint."""
    note = Path(runner.work_dir, 'last_checkpoint')  # written by mmengine
    named = Path(note.read_text().strip() if note.is_file() else '.')
    files = [file for file in (note.parent / named.name, named) if file.is_file()]
    if is_main_process() and files:  # the folder may be a copy of the one that is named
        print(f'To resume from {files[0]}: the same command with --resume.')


def add_hooks(runner: Runner, cfg: Config) -> None:
    """Add hooks of our configs to others: for resuming only if nothing else reads the data loader.

    ``ExactResumeHook`` builds it again, in another form.
    """
    given = [type(hook) for hook in runner.hooks]
    if ExactResumeHook in given:
        return
    parts = {key: within(cfg, 'train_dataloader', key) for key in ('sampler', 'batch_sampler')}
    parts['loop'] = cfg.train_cfg
    is_stock = all(type_name(part).rpartition('.')[2] in STOCK[key] for key, part in parts.items())
    if is_stock and {hook.__module__.partition('.')[0] for hook in given} <= PACKAGES:
        _add(runner, ExactResumeHook())
    elif is_main_process():
        print(
            'Note: the config has a loop, a sampler or hooks of its own. If this run is stopped '
            'and resumed, the order of the images differs from a run without interruption; '
            '--cfg-options default_hooks.exact_resume.type=mmbixt.ExactResumeHook makes it equal.',
            flush=True,
        )


def skip_lost_weights(runner: Runner) -> None:
    """Do not read an ``init_cfg`` whose file is gone: the checkpoint of a resumed run has all.

    That of adapters (LoRA) has only themselves, so the weights below them are needed.
    """
    if not isinstance(runner.model, nn.Module):  # FlexibleRunner builds it later
        return
    parts = dict(unwrapped(runner.model).named_modules())
    adapted = [name for name, part in parts.items() if type(part).__name__ == 'LoRAModel']
    for name, part in parts.items():
        if any(name == above or name.startswith(f'{above}.'.lstrip('.')) for above in adapted):
            continue
        given = getattr(part, 'init_cfg', None)
        for init in given if isinstance(given, list) else [given]:
            file = init.get('checkpoint') if isinstance(init, dict) else None
            if isinstance(file, str) and [*missing_file(file, '')]:
                part.init_cfg = None
                runner.logger.info(f'{name}.init_cfg: {file} is missing, and not needed to resume.')


class RatesHook(Hook):
    """Log the learning rates of parts of the model, in place of mmengine's line for each weight."""

    priority = 'LOWEST'

    def before_train(self, runner: Runner) -> None:
        rates = table(unwrapped(runner.model), runner.optim_wrapper.param_groups)
        runner.logger.info(f'Learning rates before the schedule:\n{rates}')


def summarise_rates(runner: Runner, cfg: Config) -> None:
    """Log a table of learning rates, unless a constructor makes them (ours logs its own)."""
    if 'optimizer' in cfg.optim_wrapper and 'constructor' not in cfg.optim_wrapper:
        runner.logger.addFilter(lambda record: not OF_A_WEIGHT.search(record.getMessage()))
        runner.register_hook(RatesHook())


def _add(runner: Runner, hook: Hook) -> None:
    runner.register_hook(hook)
    runner.logger.info(f'Hook that tools/train.py adds: mmbixt.{type(hook).__name__}')


def main() -> None:
    args = parse_args()
    cfg = load_config(args, splits=('train', 'val'))
    messages = apply_options(cfg, args)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    for message in messages:
        runner.logger.warning(message)
    if cfg.get('resume'):
        skip_lost_weights(runner)
    add_hooks(runner, cfg)
    if cfg.get('resume'):
        runner.register_hook(KeepOtherRunsHook())
    summarise_rates(runner, cfg)
    try:
        run_loop(runner, runner.train)
    except (KeyboardInterrupt, SystemExit):
        print_resume_advice(runner)
        raise


if __name__ == '__main__':
    run(main)

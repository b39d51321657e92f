"""Train a model: mmengine's runner, for configs of mmseg, mmdet and mmpretrain."""

import mmbixt.passive_threads  # noqa: F401

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from mmengine.config import Config

from mmbixt.cli import add_common_arguments, build_runner, load_config, run
from mmbixt.config import ConfigError


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Train a segmentor (mmseg config), a detector (mmdet) or a classifier '
        '(mmpretrain).',
        epilog='Example: python tools/train.py configs/bixt/semfpn_bixt_ti_ade20k.py --sample',
    )
    add_common_arguments(parser)
    add = parser.add_argument
    text = 'try the config: N (5) iterations on its data, then validation on N images; small '
    text += 'batches and images, no download of weights, no files'
    add('--fast-dev-run', nargs='?', type=int, const=5, metavar='N', help=text)
    text = 'resume from a checkpoint, by default from the latest in the work dir'
    add('--resume', nargs='?', const='auto', metavar='CHECKPOINT', help=text)
    text = 'on a GPU: automatic mixed precision, in float16 (bfloat16: --cfg-options '
    add('--amp', action='store_true', help=text + 'optim_wrapper.dtype=bfloat16)')
    text = 'scale the learning rate from the batch size of the config to the actual one (of all '
    add('--auto-scale-lr', action='store_true', help=text + 'GPUs together)')
    text = 'on a GPU: run forward and backward pass as a CUDA graph (mmbixt.CUDAGraphsHook)'
    add('--cuda-graphs', action='store_true', help=text)
    text = "on a GPU, elsewhere it gains little: compile the backbone's layers "
    add('--compile-layers', action='store_true', help=text + '(mmbixt.CompileLayersHook)')
    args = parser.parse_args()
    if args.fast_dev_run and (args.resume or args.work_dir):
        parser.error('--fast-dev-run keeps nothing: without --work-dir and --resume')
    return args


def apply_options(cfg: Config, args: argparse.Namespace) -> None:
    if args.amp:
        use_half_precision(cfg)
    if args.auto_scale_lr:
        if 'base_batch_size' not in cfg.get('auto_scale_lr', {}):
            raise ConfigError('--auto-scale-lr: the config lacks auto_scale_lr.base_batch_size.')
        cfg.auto_scale_lr.enable = True
    if args.cuda_graphs:
        cfg.train_dataloader.pin_memory = False  # its thread would disturb the capture
    names = ['CompileLayersHook'] * args.compile_layers + ['CUDAGraphsHook'] * args.cuda_graphs
    if names:
        hooks = [dict(type=f'mmbixt.{name}') for name in names]
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), *hooks]
    if args.resume == 'auto' and not Path(cfg.work_dir, 'last_checkpoint').exists():
        if os.environ.get('RANK', '0') == '0':
            print(f'--resume: {cfg.work_dir} has no checkpoint, so training begins from the start.')
    elif args.resume:
        cfg.resume = True
        cfg.load_from = None if args.resume == 'auto' else args.resume


def use_half_precision(cfg: Config) -> None:
    if 'rpn_head' in cfg.model and cfg.optim_wrapper.get('dtype') == 'bfloat16':
        raise ConfigError(
            '--amp: detectors with proposals need float16: the operators of mmcv (NMS, RoIAlign) '
            'have no bfloat16.'
        )
    if not torch.cuda.is_available():
        raise ConfigError('--amp: torch finds no GPU.')
    # bfloat16 has the range of float32
    scale = dict(enabled=False) if cfg.optim_wrapper.get('dtype') == 'bfloat16' else 'dynamic'
    cfg.optim_wrapper.update(type='AmpOptimWrapper', loss_scale=scale)


def train(args: argparse.Namespace) -> None:
    cfg = load_config(args, steps=args.fast_dev_run)
    apply_options(cfg, args)
    runner = build_runner(cfg)
    if cfg.get('resume'):
        runner.register_hook(dict(type='mmbixt.KeepOtherRunsHook'))
    runner.train()


def main() -> None:
    args = parse_args()
    if not args.fast_dev_run:
        return train(args)
    with TemporaryDirectory() as args.work_dir:
        train(args)


if __name__ == '__main__':
    run(main)

"""Train a model: mmengine's runner, for configs of mmseg, mmdet and mmpretrain."""

import argparse
from pathlib import Path

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.dist import is_main_process
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmbixt.checkpoints.layout import inspect_file
from mmbixt.checkpoints.loader import load
from mmbixt.cli import add_common_arguments, load_config, run, run_loop


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
        help='go on from a checkpoint, by default from the latest in the work dir',
    )
    parser.add_argument(
        '--amp',
        action='store_true',
        help='automatic mixed precision on a GPU, in float16 (bfloat16: --cfg-options '
        'optim_wrapper.dtype=bfloat16)',
    )
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help='scale the learning rate from the batch that the config is meant for to the actual '
        'one (all GPUs together)',
    )
    args = parser.parse_args()
    if args.amp and get_device() == 'cpu':
        parser.error("--amp needs a GPU: mmengine's mixed precision does not train on a CPU.")
    return args


def apply_options(cfg: Config, args: argparse.Namespace) -> None:
    if args.amp:
        cfg.optim_wrapper.update(type='AmpOptimWrapper', loss_scale='dynamic')
    if args.auto_scale_lr:
        if 'base_batch_size' not in cfg.get('auto_scale_lr', {}):
            raise SystemExit(
                f'--auto-scale-lr: {args.config} does not say which batch its learning rate is '
                'meant for; set auto_scale_lr=dict(base_batch_size=...).'
            )
        cfg.auto_scale_lr.enable = True
    if args.resume:
        cfg.resume = True
        cfg.load_from = latest_whole(Path(cfg.work_dir)) if args.resume == 'auto' else args.resume
        if args.resume != 'auto' and 'meta' not in load(args.resume):
            raise SystemExit(
                f'--resume: {args.resume} has weights, but no run to go on with. To start from '
                f'them: --cfg-options load_from={args.resume}'
            )


def latest_whole(work_dir: Path) -> str | None:
    """The latest checkpoint of a work dir; if it is damaged (after a power cut), one before it."""
    note = work_dir / 'last_checkpoint'  # where mmengine looks
    named = [Path(note.read_text().strip())] if note.is_file() else []
    saved = [*work_dir.glob('iter_*.pth'), *work_dir.glob('epoch_*.pth')]
    saved.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in [*named, *saved]:
        try:
            with path.open('rb') as file:
                inspect_file(file)
            if [path] != named:
                print(f'--resume goes on from {path}.')
            return str(path)
        except Exception as error:  # of a damaged file, any
            what = note if path == Path() else path
            print(f'--resume: {what} is empty or damaged ({type(error).__name__}: {error}).')
    return None


def say_how_to_resume(runner: Runner) -> None:
    """Of a run that was stopped; before its first checkpoint there is nothing to resume."""
    note = Path(runner.work_dir, 'last_checkpoint')  # where mmengine looks
    if is_main_process() and note.is_file() and Path(note.read_text().strip()).exists():
        print(f'The same command with --resume goes on from {note.read_text().strip()}.')


def main() -> None:
    args = parse_args()
    cfg = load_config(args, splits=('train', 'val'))
    apply_options(cfg, args)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    try:
        run_loop(runner, runner.train)
    except (KeyboardInterrupt, SystemExit):
        say_how_to_resume(runner)
        raise


if __name__ == '__main__':
    run(main)

"""Evaluate a checkpoint: mmengine's runner, for configs of mmseg and of mmdet."""

import argparse

from mmengine.config import Config, ConfigDict
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from mmbixt.cli import add_common_arguments, load_config, run


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Evaluate a segmentor (mmseg config) or a detector (mmdet config).',
        epilog='Example: python tools/test.py configs/bixt/semfpn_bixt_ti_ade20k.py '
        'work_dirs/semfpn_bixt_ti_ade20k/iter_80000.pth',
    )
    add_common_arguments(parser)
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument(
        '--out',
        help='also save the predictions: a folder for PNG label maps (mmseg), a .pkl file (mmdet)',
    )
    parser.add_argument('--show', action='store_true', help='show the predictions in a window')
    parser.add_argument(
        '--show-dir',
        help='draw every prediction: into SHOW_DIR/vis_data/vis_image (mmseg) or '
        'WORK_DIR/TIMESTAMP/SHOW_DIR (mmdet)',
    )
    parser.add_argument(
        '--wait-time', type=float, default=2, help='seconds for which --show shows each (2)'
    )
    parser.add_argument(
        '--tta', action='store_true', help='test-time augmentation: several scales, and flipped'
    )
    return parser.parse_args()


def draw_predictions(cfg: Config, args: argparse.Namespace) -> None:
    cfg.default_hooks.visualization.update(
        draw=True,
        interval=1,  # mmseg's default leaves out 49 of 50
        show=args.show,
        wait_time=args.wait_time,
    )
    if args.show_dir:
        if cfg.default_scope == 'mmdet':
            cfg.default_hooks.visualization.test_out_dir = args.show_dir
        else:
            cfg.visualizer.save_dir = args.show_dir


def augment_tests(cfg: Config, args: argparse.Namespace) -> None:
    if 'tta_model' not in cfg or 'tta_pipeline' not in cfg:
        raise SystemExit(f'--tta: {args.config} has no tta_model and tta_pipeline.')
    cfg.test_dataloader.dataset.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def save_predictions(cfg: Config, args: argparse.Namespace) -> None:
    if cfg.default_scope == 'mmdet':
        dump = dict(type='DumpDetResults', out_file_path=args.out)
        evaluators = cfg.test_evaluator
        cfg.test_evaluator = [*(evaluators if isinstance(evaluators, list) else [evaluators]), dump]
    else:
        cfg.test_evaluator.update(output_dir=args.out, keep_results=True)


def main() -> None:
    args = parse_args()
    cfg = load_config(args, splits=('test',))
    cfg.load_from = args.checkpoint
    if args.show or args.show_dir:
        draw_predictions(cfg, args)
    if args.tta:
        augment_tests(cfg, args)
    if args.out:
        save_predictions(cfg, args)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    runner.test()


if __name__ == '__main__':
    run(main)

"""Evaluate a checkpoint: mmengine's runner, for configs of mmseg, mmdet and mmpretrain."""

import argparse
import logging
import os

from mmengine.config import Config, ConfigDict
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from timm.layers import to_2tuple
from torch.distributed.fsdp import FullyShardedDataParallel

from mmbixt.check.metrics import metrics_of, predicts_boxes_only
from mmbixt.checkpoints.state_dict import load_whole_state, unwrap
from mmbixt.cli import add_common_arguments, load_config, run, run_loop
from mmbixt.config import all_dicts
from mmbixt.datasets.availability import leaves


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Evaluate a segmentor (mmseg config), a detector (mmdet) or a classifier '
        '(mmpretrain).',
        epilog='Example: python tools/test.py configs/bixt/semfpn_bixt_ti_ade20k.py '
        'work_dirs/semfpn_bixt_ti_ade20k/iter_80000.pth',
    )
    add_common_arguments(parser)
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument(
        '--out',
        help='also save the predictions: a folder for PNG label maps (mmseg), a .pkl file (mmdet, '
        'mmpretrain)',
    )
    parser.add_argument('--show', action='store_true', help='show the predictions in a window')
    parser.add_argument(
        '--show-dir',
        help='draw every prediction: into SHOW_DIR/vis_data/vis_image (mmseg), '
        'WORK_DIR/TIMESTAMP/SHOW_DIR (mmdet) or SHOW_DIR (mmpretrain)',
    )
    parser.add_argument(
        '--wait-time', type=float, default=2, help='seconds for which --show shows each (2)'
    )
    parser.add_argument(
        '--tta',
        action='store_true',
        help='test-time augmentation: flipped images, and several scales for segmentors',
    )
    parser.add_argument(
        '--boundary',
        action='store_true',
        help='also evaluate near boundaries: mIoU in bands, Boundary IoU and WORK_DIR/boundary.npz '
        'for tools/analysis/compare.py (mmseg); boundary AP of the masks (mmdet)',
    )
    return parser.parse_args()


def draw_predictions(cfg: Config, args: argparse.Namespace) -> None:
    if args.tta and cfg.default_scope == 'mmpretrain':
        raise SystemExit('--show, --show-dir: mmpretrain cannot draw predictions of --tta.')
    hook = cfg.default_hooks.visualization
    hook['enable' if cfg.default_scope == 'mmpretrain' else 'draw'] = True
    # mmseg's default is one of 50 images
    hook.update(interval=1, show=args.show, wait_time=args.wait_time)
    if args.show_dir:
        if cfg.default_scope == 'mmpretrain':
            hook.out_dir = args.show_dir
        elif cfg.default_scope == 'mmdet':
            hook.test_out_dir = args.show_dir
        else:
            cfg.visualizer.save_dir = args.show_dir


def augment_tests(cfg: Config, args: argparse.Namespace) -> None:
    parts = [*leaves(cfg.test_dataloader.dataset)]
    if cfg.default_scope in TTA_MODELS:
        cfg.setdefault('tta_model', TTA_MODELS[cfg.default_scope])
        cfg.setdefault('tta_pipeline', flip_pipeline(parts[0].pipeline, cfg.default_scope))
    if 'tta_model' not in cfg or 'tta_pipeline' not in cfg:
        raise SystemExit(f'--tta: {args.config} has no tta_model and tta_pipeline.')
    if cfg.tta_model.type == 'DetTTAModel' and not predicts_boxes_only(cfg.model):
        raise SystemExit(
            f'--tta: mmdet can merge boxes, but no masks, which {args.config} predicts.'
        )
    if cfg.default_scope == 'mmseg':
        fit_scales(cfg, parts[0].pipeline)
    for part in parts:
        part.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)
    # The weights of a checkpoint are averaged already, and EMAHook would expect the names of the
    # wrapped model.
    hooks = cfg.get('custom_hooks') or []
    cfg.custom_hooks = [hook for hook in hooks if not str(hook['type']).endswith('EMAHook')]


# defaults of the frameworks' own tools
TTA_MODELS = {
    'mmdet': dict(
        type='DetTTAModel',
        tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100),
    ),
    'mmpretrain': dict(type='AverageClsScoreTTA'),
}


def flip_pipeline(pipeline: list[dict], framework: str) -> list[dict]:
    """A test pipeline for an image and its mirror image; its last step packs the results."""
    *steps, pack = pipeline
    if framework == 'mmdet':
        meta_keys = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
        pack = {**pack, 'meta_keys': (*meta_keys, 'flip', 'flip_direction')}
    flips = [dict(type='RandomFlip', prob=prob) for prob in (1.0, 0.0)]
    return [*steps, dict(type='TestTimeAug', transforms=[flips, [pack]])]


def fit_scales(cfg: Config, test_pipeline: list[dict]) -> None:
    """Scale an inherited ``tta_pipeline`` to the size of the test pipeline, and print the sizes.

    A config that changes the size of ``test_pipeline`` inherits the sizes for another data set.
    """
    steps = resizes(cfg.tta_pipeline)
    own, scales = (
        [to_2tuple(step.get('scale')) for step in part] for part in (resizes(test_pipeline), steps)
    )
    if own and own[-1] not in scales and (None, None) not in (own[-1], *scales):
        ratios = cfg.get('img_ratios') or ()
        if len(ratios) != len(steps):
            raise SystemExit(
                f'--tta: test images have the size {own[-1]}, and tta_pipeline has only others, '
                f'{scales}. Set tta_pipeline.'
            )
        scales = [tuple(int(side * ratio) for side in own[-1]) for ratio in ratios]
        for step, scale in zip(steps, scales, strict=True):
            step.scale = scale
    if steps and is_main_process():
        usual = [f'(without --tta: {own[-1]})'] if own else []
        sizes = (step.get('scale') or f'{step.scale_factor} x the file' for step in steps)
        print('--tta: the sizes of each image are', *sizes, *usual, flush=True)


def resizes(pipeline: list[dict]) -> list[ConfigDict]:
    return [step for step in all_dicts(pipeline) if step.get('type') == 'Resize']


def evaluate_boundaries(cfg: Config, args: argparse.Namespace) -> None:
    if cfg.default_scope == 'mmpretrain':
        raise SystemExit(f'--boundary: {args.config} is of a classifier, which has no boundaries.')
    evaluators = list_evaluators(cfg)
    named = [(name, e) for e in evaluators for _, name, _ in metrics_of(e)]
    ours = [e for name, e in named if name in ('BoundaryIoUMetric', 'BoundaryCocoMetric')]
    if cfg.default_scope == 'mmdet' and not ours:
        mask_metrics = [
            e for name, e in named if name == 'CocoMetric' and 'segm' in e.get('metric', 'bbox')
        ]
        if not mask_metrics:
            raise SystemExit(
                f'--boundary needs masks, and {args.config} evaluates none (CocoMetric with '
                "metric='segm')."
            )
        for evaluator in mask_metrics:
            evaluator.type = 'mmbixt.BoundaryCocoMetric'
    elif cfg.default_scope != 'mmdet':
        if not ours:  # a second one would have scores of the same names
            ours = [ConfigDict(type='mmbixt.BoundaryIoUMetric')]
            evaluators += ours
        if ours[0].get('sums_file') is None:
            ours[0].sums_file = os.path.join(cfg.work_dir, 'boundary.npz')
    cfg.test_evaluator = evaluators


def list_evaluators(cfg: Config) -> list[dict]:
    evaluators = cfg.test_evaluator
    return list(evaluators) if isinstance(evaluators, list) else [evaluators]


def save_predictions(cfg: Config, args: argparse.Namespace) -> None:
    evaluators = list_evaluators(cfg)
    if cfg.default_scope == 'mmdet':
        evaluators.append(dict(type='DumpDetResults', out_file_path=args.out))
    elif cfg.default_scope == 'mmpretrain':
        evaluators.append(dict(type='DumpResults', out_file_path=args.out))
    else:
        # the slash, because IoUMetric logs the parent folder of this path
        folder = os.path.join(args.out, '')
        evaluators.append(dict(type='IoUMetric', output_dir=folder, format_only=True))
    cfg.test_evaluator = evaluators


class WholeModelHook(Hook):
    """Refuse a checkpoint that does not have all weights of the model."""

    priority = 'LOWEST'  # after hooks that choose weights, such as averaged ones

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        model = runner.model
        while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
            if isinstance(model, FullyShardedDataParallel):  # its module has only shards
                break
            model = model.module
        level = runner.logger.level
        runner.logger.setLevel(logging.ERROR)  # mmengine logs this when it loads the weights again
        try:
            load_whole_state(model, unwrap(checkpoint))
        finally:
            runner.logger.setLevel(level)


def main() -> None:
    args = parse_args()
    cfg = load_config(args, splits=('test',))
    cfg.load_from = args.checkpoint
    if args.show or args.show_dir:
        draw_predictions(cfg, args)
    if args.tta:
        augment_tests(cfg, args)
    if args.boundary:
        evaluate_boundaries(cfg, args)
    if args.out:
        save_predictions(cfg, args)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    runner.register_hook(WholeModelHook())
    run_loop(runner, runner.test)


if __name__ == '__main__':
    run(main)

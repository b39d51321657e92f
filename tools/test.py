"""Evaluate a checkpoint: mmengine's runner, for configs of mmseg, mmdet and mmpretrain."""

import argparse
import os
from math import ceil
from pathlib import Path

from mmengine.config import Config, ConfigDict
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.registry import RUNNERS
from mmengine.runner import Runner
from timm.layers import to_2tuple

from mmbixt.check.classes import order_problems
from mmbixt.check.metrics import metrics_of
from mmbixt.check.split import Split
from mmbixt.checkpoints.state_dict import load_whole_state
from mmbixt.cli import add_common_arguments, load_config, run, run_loop
from mmbixt.config import all_dicts, type_name, within
from mmbixt.datasets.availability import leaves
from mmbixt.datasets.problems import built_leaves
from mmbixt.engine.unwrapped import unwrapped
from mmbixt.progress import errors_only


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
        help='draw every prediction into SHOW_DIR, with mmseg in its vis_data/vis_image',
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
    if args.launcher != 'none' and is_main_process():  # the visualizers of mm are so
        print('--show, --show-dir: of several processes only the first draws its images.')
    window = dict(show=args.show, wait_time=args.wait_time)
    if cfg.default_scope == 'mmpretrain':
        hook = dict(type='mmbixt.DrawClassesHook', out_dir=args.show_dir, **window)
        cfg.default_hooks.visualization = hook
        return
    cfg.setdefault('default_hooks', {})
    kind = {'mmseg': 'Seg', 'mmdet': 'Det'}.get(cfg.default_scope)
    if kind and not within(cfg, 'default_hooks', 'visualization'):
        cfg.default_hooks.visualization = dict(type=f'{kind}VisualizationHook')
    if kind and not within(cfg, 'visualizer'):
        backends = [dict(type='LocalVisBackend')]
        cfg.visualizer = dict(type=f'{kind}LocalVisualizer', vis_backends=backends)
    hook = cfg.default_hooks.visualization
    hook.update(draw=True, interval=1, **window)  # mmseg's default is one of 50 images
    if args.show_dir and cfg.default_scope == 'mmdet':
        hook.test_out_dir = os.path.abspath(args.show_dir)  # else in the folder of the log
    elif args.show_dir:
        cfg.visualizer.save_dir = args.show_dir


def augment_tests(cfg: Config, args: argparse.Namespace) -> None:
    parts = [*leaves(cfg.test_dataloader.dataset)]
    if cfg.default_scope in TTA_MODELS:
        cfg.setdefault('tta_model', TTA_MODELS[cfg.default_scope])
        cfg.setdefault('tta_pipeline', flip_pipeline(parts[0].pipeline, cfg.default_scope))
    if 'tta_model' not in cfg or 'tta_pipeline' not in cfg:
        raise SystemExit(f'--tta: {args.config} has no tta_model and tta_pipeline.')
    has_masks = cfg.model.get('mask_head') or (cfg.model.get('roi_head') or {}).get('mask_head')
    if type_name(cfg.tta_model) == 'DetTTAModel' and has_masks:
        raise SystemExit(
            f'--tta: mmdet can merge boxes, but no masks, which {args.config} predicts.'
        )
    if cfg.default_scope == 'mmseg':
        fit_scales(cfg, parts[0].pipeline)
    load = parts[0].pipeline[0]
    if 'LoadImage' in type_name(load) and 'LoadImage' in type_name(cfg.tta_pipeline[0]):
        cfg.tta_pipeline[0] = load  # an inherited one may be for another number of channels
    for part in parts:
        part.pipeline = cfg.tta_pipeline
    model = cfg.tta_model.copy()
    model.module = cfg.model
    cfg.model = model
    # The weights of a checkpoint are averaged already, and EMAHook would expect the names of the
    # wrapped model.
    hooks = cfg.get('custom_hooks') or []
    cfg.custom_hooks = [hook for hook in hooks if not type_name(hook).endswith('EMAHook')]


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

    A config that changes the size of ``test_pipeline`` inherits multiples (``img_ratios``) of the
    size of another data set.
    """
    ratios = cfg.get('img_ratios')
    steps = [step for step in all_dicts(cfg.tta_pipeline) if is_resize(step)]
    resizing = [step for step in all_dicts(test_pipeline) if 'Resize' in type_name(step)]
    own = resizing[0] if resizing else dict(type='Resize', scale_factor=1.0)
    if are_multiples([step.get('scale') for step in steps], ratios):
        factor = own.get('scale_factor')
        if not is_resize(own) or not ('scale' in own or isinstance(factor, int | float)):
            raise SystemExit(
                '--tta: tta_pipeline is for the size of another data set. Set tta_pipeline.'
            )
        for step, ratio in zip(steps, ratios, strict=True):
            del step['scale']
            if 'scale' in own:
                step.scale = multiple(to_2tuple(own['scale']), ratio)
            else:
                step.scale_factor = factor * ratio
    if steps and is_main_process():
        *sizes, usual = (
            step.get('scale') or f'{step.get("scale_factor")} x the file' for step in (*steps, own)
        )
        sizes = ', '.join(map(str, sizes))
        print(f'--tta: the sizes of each image are {sizes} (without --tta: {usual})', flush=True)


def is_resize(step: dict) -> bool:
    return type_name(step).rpartition('.')[2] == 'Resize'


def are_multiples(scales: list[tuple | None], ratios: list[float] | None) -> bool:
    """Whether scales are the multiples of one size by ratios."""
    if not isinstance(ratios, list | tuple) or len(ratios) != len(scales):
        return False
    if not scales or None in scales:
        return False
    base = tuple(ceil(side / ratios[-1]) for side in to_2tuple(scales[-1]))
    pairs = zip(scales, ratios, strict=True)
    return all(to_2tuple(scale) == multiple(base, ratio) for scale, ratio in pairs)


def multiple(size: tuple[int, int], ratio: float) -> tuple[int, int]:
    return tuple(int(side * ratio) for side in size)


def evaluate_boundaries(cfg: Config, args: argparse.Namespace) -> None:
    if cfg.default_scope == 'mmpretrain':
        raise SystemExit(f'--boundary: {args.config} is of a classifier, which has no boundaries.')
    evaluators = list_evaluators(cfg)
    named = [(name, e) for e in evaluators for _, name, _ in metrics_of(e)]
    ours = [e for name, e in named if name in ('BoundaryIoUMetric', 'BoundaryCocoMetric')]
    if cfg.default_scope == 'mmdet':
        masks = [e for name, e in named if name == 'CocoMetric' and 'segm' in e.get('metric', '')]
        if not (ours or masks):
            raise SystemExit(
                f'--boundary needs masks, and {args.config} evaluates none (CocoMetric with '
                "metric='segm')."
            )
        for evaluator in [] if ours else masks:
            evaluator.type = 'mmbixt.BoundaryCocoMetric'
    else:
        if not ours:  # a second one would have scores of the same names
            ours = [ConfigDict(type='mmbixt.BoundaryIoUMetric')]
            for name, e in named:
                if name == 'IoUMetric' and 'ignore_index' in e:
                    ours[0].ignore_index = e.ignore_index
            evaluators += ours
        if ours[0].get('sums_file') is None:
            ours[0].sums_file = os.path.join(cfg.work_dir, 'boundary.npz')
    cfg.test_evaluator = evaluators


def list_evaluators(cfg: Config) -> list[dict]:
    evaluators = cfg.test_evaluator
    if isinstance(evaluators, dict) and 'metrics' in evaluators:
        if type_name(evaluators) in ('None', 'Evaluator'):
            evaluators = evaluators.metrics
            return list(evaluators) if isinstance(evaluators, list) else [evaluators]
        raise SystemExit(
            f'--boundary, --out: {type_name(evaluators)} is an evaluator of several data sets, for '
            'which these options are not made. Test the data sets one by one.'
        )
    return list(evaluators) if isinstance(evaluators, list) else [evaluators]


def save_predictions(cfg: Config, args: argparse.Namespace) -> None:
    if cfg.default_scope != 'mmseg' and not args.out.endswith(('.pkl', '.pickle')):
        raise SystemExit(f'--out {args.out}: give a .pkl file, because the config is no segmentor.')
    if cfg.default_scope == 'mmseg':
        # the slash, because IoUMetric logs the parent folder of this path
        folder = os.path.join(args.out, '')
        evaluator = dict(type='IoUMetric', output_dir=folder, format_only=True)
    else:
        kind = 'DumpDetResults' if cfg.default_scope == 'mmdet' else 'DumpResults'
        evaluator = dict(type=kind, out_file_path=args.out)
    cfg.test_evaluator = [*list_evaluators(cfg), evaluator]


class WholeModelHook(Hook):
    """Refuse a checkpoint that does not have all weights of the model."""

    priority = 'LOWEST'  # after hooks that choose weights, such as averaged ones

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        with errors_only(runner.logger):  # mmengine logs this when it loads the weights again
            load_whole_state(unwrapped(runner.model), checkpoint)
        trained = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
        tested = getattr(runner.test_dataloader.dataset, 'metainfo', None) or {}
        known = [tuple(meta.get('classes') or ()) for meta in (trained, tested)]
        splits = [Split('train', '', known[0]), Split('test', '', known[1])]
        for problem in order_problems(splits):
            raise SystemExit(f'{runner._load_from}: {problem}')


class FileNamesHook(Hook):
    """Refuse to write files of equal names for images in different folders.

    mmseg and mmdet name pictures as the images, and mmseg predictions without the suffix.
    """

    def __init__(self, has_suffix: bool) -> None:
        self.has_suffix = has_suffix

    def before_test(self, runner: Runner) -> None:
        paths: dict[str, str] = {}
        for dataset in built_leaves(runner.test_dataloader.dataset):
            infos = map(dataset.get_data_info, range(len(dataset)))
            for path in (info.get('img_path') for info in infos):
                if not isinstance(path, str):  # several images, or none
                    continue
                name = Path(path).name if self.has_suffix else Path(path).stem
                other = paths.setdefault(name, path)
                if other != path:
                    raise SystemExit(
                        f'--out, --show-dir: {other} and {path} have the same name, and one file '
                        'would replace the other.'
                    )


def main() -> None:
    args = parse_args()
    cfg = load_config(args, splits=('test',))
    if not cfg.get('test_dataloader'):
        raise SystemExit(f'{args.config} has no test_dataloader.')
    cfg.load_from, cfg.resume = args.checkpoint, False
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
    writes_maps = args.out and cfg.default_scope == 'mmseg'
    if writes_maps or (args.show_dir and cfg.default_scope in ('mmseg', 'mmdet')):
        runner.register_hook(FileNamesHook(has_suffix=not writes_maps))
    run_loop(runner, runner.test)


if __name__ == '__main__':
    run(main)

"""Evaluate a checkpoint: mmengine's runner, for configs of mmseg, mmdet and mmpretrain."""

import mmbixt.passive_threads  # noqa: F401

import argparse
import os
from pathlib import Path

from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import nn

from mmbixt.backbones.weights import load_whole_state
from mmbixt.check.mistakes import check_trained, unwrapped
from mmbixt.cli import add_common_arguments, build_runner, load_config, run
from mmbixt.config import ConfigError, all_dicts, data_sets, type_name, without_downloads


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description='Evaluate a segmentor (mmseg config), a detector (mmdet) or a classifier '
        '(mmpretrain).',
        epilog='Example: python tools/test.py configs/bixt/semfpn_bixt_ti_ade20k.py '
        'work_dirs/semfpn_bixt_ti_ade20k/iter_80000.pth',
    )
    add_common_arguments(parser)
    add = parser.add_argument
    add('checkpoint', help='checkpoint file')
    text = 'also save the predictions: a folder for PNG label maps (mmseg), a .pkl file (mmdet, '
    add('--out', help=text + 'mmpretrain)')
    add('--show', action='store_true', help='show the predictions in a window')
    add('--show-dir', help='draw every prediction into this folder')
    add('--wait-time', type=float, default=2, help='seconds for which --show shows each (2)')
    text = 'test-time augmentation: flipped images, and several scales for segmentors'
    add('--tta', action='store_true', help=text)
    text = 'also evaluate near boundaries: mIoU in bands, Boundary IoU and WORK_DIR/boundary.npz '
    text += 'for tools/analysis/compare.py (mmseg); boundary AP of the masks (mmdet)'
    add('--boundary', action='store_true', help=text)
    return parser.parse_args()


def draw_predictions(cfg: Config, args: argparse.Namespace) -> None:
    # mmseg's and mmpretrain's hooks would read the training images
    cfg.update(train_cfg=None, train_dataloader=None, optim_wrapper=None, param_scheduler=None)
    hook = cfg.default_hooks.visualization
    hook.update(show=args.show, wait_time=args.wait_time, interval=1)
    if cfg.default_scope == 'mmpretrain':
        hook.update(enable=True, out_dir=args.show_dir)
        return
    hook.draw = True
    if args.show_dir and cfg.default_scope == 'mmdet':
        # mmdet puts a relative path into the folder of the log
        hook.test_out_dir = os.path.abspath(args.show_dir)
    elif args.show_dir:
        cfg.visualizer.save_dir = args.show_dir


# defaults of the frameworks' own tools
TTA_MODELS = {
    'mmdet': dict(
        type='DetTTAModel', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100)
    ),
    'mmpretrain': dict(type='AverageClsScoreTTA'),
}


def augment_tests(cfg: Config) -> None:
    data = [dataset for _, dataset in data_sets(cfg, 'test')]
    if cfg.default_scope in TTA_MODELS:
        cfg.setdefault('tta_model', ConfigDict(TTA_MODELS[cfg.default_scope]))
        cfg.setdefault('tta_pipeline', flip_pipeline(data[0].pipeline, cfg.default_scope))
    scales = [x.get('scale') or x.get('scale_factor') for x in all_dicts(cfg.tta_pipeline)]
    print(f'--tta: the sizes of tta_pipeline are {", ".join(map(str, filter(None, scales)))}')
    for dataset in data:
        dataset.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)
    # a checkpoint has the averaged weights already
    hooks = cfg.get('custom_hooks') or []
    cfg.custom_hooks = [hook for hook in hooks if type_name(hook) != 'EMAHook']


def check_augmentable(model: nn.Module) -> None:
    """Refuse results that the frameworks cannot merge."""
    for part in model.modules():
        if type(part).__name__ == 'DetTTAModel' and part.module.with_mask:
            raise ConfigError('--tta is for detectors without masks, which mmdet cannot merge.')
        if type(part).__name__ == 'SegTTAModel' and part.module.out_channels == 1:
            text = 'of a single one mmseg would take the sigmoid twice.'
            raise ConfigError(f'--tta needs a logit for each class: {text}')


def flip_pipeline(pipeline: list[dict], framework: str) -> list[dict]:
    """A test pipeline for an image and its mirror image; its last step packs the results."""
    *steps, pack = pipeline
    if framework == 'mmdet':
        meta_keys = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
        pack = {**pack, 'meta_keys': (*meta_keys, 'flip', 'flip_direction')}
    flips = [dict(type='RandomFlip', prob=prob) for prob in (1.0, 0.0)]
    return [*steps, dict(type='TestTimeAug', transforms=[flips, [pack]])]


def evaluate_boundaries(cfg: Config) -> None:
    evaluators = as_list(cfg.test_evaluator)
    names = {type_name(e): e for e in evaluators}
    if cfg.default_scope == 'mmdet':
        if (metric := names.get('CocoMetric')) is None or 'segm' not in metric.metric:
            raise ConfigError("--boundary needs masks: a CocoMetric with metric='segm'.")
        metric.type = 'mmbixt.BoundaryCocoMetric'
    elif cfg.default_scope == 'mmseg':
        metric = names.get('BoundaryIoUMetric')
        if metric is None:
            metric = ConfigDict(type='mmbixt.BoundaryIoUMetric')
            if 'ignore_index' in names.get('IoUMetric', {}):
                metric.ignore_index = names['IoUMetric'].ignore_index
            evaluators.append(metric)
        metric.setdefault('sums_file', os.path.join(cfg.work_dir, 'boundary.npz'))
    else:
        raise ConfigError('--boundary is for segmentors and for detectors with masks.')
    cfg.test_evaluator = evaluators


def save_predictions(cfg: Config, out: str) -> None:
    if cfg.default_scope == 'mmseg':
        metric = dict(type='IoUMetric', output_dir=os.path.join(out, ''), format_only=True)
        scoring = [x for x in as_list(cfg.test_evaluator) if type_name(x) == 'IoUMetric']
        if scoring:  # it writes, too; a second one without scores would warn that it has none
            scoring[0].output_dir = out
            return
    else:
        kind = 'DumpDetResults' if cfg.default_scope == 'mmdet' else 'DumpResults'
        metric = dict(type=kind, out_file_path=out)
    cfg.test_evaluator = [*as_list(cfg.test_evaluator), metric]


def check_names(dataset: BaseDataset) -> None:
    """Refuse two images of one name, for which the frameworks write one file."""
    paths: dict[str, str] = {}
    for info in map(dataset.get_data_info, range(len(dataset))):
        if path := info.get('img_path'):  # images may be in memory
            other = paths.setdefault(Path(path).stem, path)
            if other != path:
                text = f'{other} and {path} have one name, and would be written to one file'
                raise ConfigError(f'{text}: tools/predict.py --out keeps their folders.')


def as_list(evaluators: list | dict) -> list[dict]:
    return list(evaluators) if isinstance(evaluators, list) else [evaluators]


class WholeModelHook(Hook):
    """Refuse a checkpoint without all weights of the model, or of classes in another order.

    mmengine would test a model with random weights, and log that.
    """

    priority = 'LOWEST'  # after hooks that choose weights, such as averaged ones

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        runner.logger.disabled = True  # mmengine loads the weights again, and logs it
        try:
            load_whole_state(unwrapped(runner.model), checkpoint, runner.cfg.load_from)
        finally:
            runner.logger.disabled = False
        check_trained(unwrapped(runner.model), checkpoint, runner.test_loop.dataloader.dataset)


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    cfg.load_from, cfg.resume = args.checkpoint, False
    without_downloads(cfg.model)
    if args.show or args.show_dir:
        draw_predictions(cfg, args)
    if args.tta:
        augment_tests(cfg)
    if args.boundary:
        evaluate_boundaries(cfg)
    if args.out:
        save_predictions(cfg, args.out)
    runner = build_runner(cfg)
    runner.register_hook(WholeModelHook())
    if args.tta:
        check_augmentable(runner.model)
    if args.show_dir or (args.out and cfg.default_scope == 'mmseg'):
        check_names(runner.test_loop.dataloader.dataset)
    runner.test()


if __name__ == '__main__':
    run(main)

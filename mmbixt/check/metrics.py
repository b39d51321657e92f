"""Check that the metrics of a config fit the predictions of its model, before it is built."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmengine.registry import METRICS

from mmbixt.check.names import explain
from mmbixt.config import within
from mmbixt.datasets.availability import annotation_file, leaves

INSTEAD = {
    'mmdet': {
        'BoundaryIoUMetric': "mmbixt.BoundaryCocoMetric with metric=['bbox', 'segm'], "
        'in place of CocoMetric',
        'IoUMetric': "CocoMetric with metric=['bbox', 'segm']",
    },
    'mmseg': {
        'BoundaryCocoMetric': 'mmbixt.BoundaryIoUMetric, with IoUMetric or instead of it',
        'CocoMetric': 'IoUMetric',
    },
    'mmpretrain': dict.fromkeys(
        ('IoUMetric', 'BoundaryIoUMetric', 'CocoMetric', 'BoundaryCocoMetric'),
        'Accuracy with topk=(1, 5)',
    ),
}
FILES = {'ann_file', 'output_dir'}  # arguments of metrics, which may be None
SCORES = ('mIoU', 'mDice', 'mFscore')  # of mmseg's IoUMetric
# names of the scores of metrics without a prefix of their own, and an example
BEST = {
    'IoUMetric': ('aAcc|m(IoU|Acc|Dice|Fscore|Precision|Recall)', 'mIoU'),
    'BoundaryIoUMetric': ('.+/.+', 'band3px/mIoU'),
    'CocoMetric': ('coco/.+', 'coco/bbox_mAP'),
    'BoundaryCocoMetric': ('coco/.+', 'coco/bbox_mAP'),
    'Accuracy': ('accuracy/.+', 'accuracy/top1'),
}
WHAT = {'mmdet': 'objects', 'mmseg': 'label maps', 'mmpretrain': 'classes of whole images'}
BOXES_ONLY = (
    'predicts boxes only, and BoundaryCocoMetric needs masks. Use '
    "dict(type='CocoMetric', metric='bbox', ...), or a model that predicts masks (Mask R-CNN)."
)


def metric_problems(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """One message for each metric that does not fit the predictions of the model.

    Args:
        cfg: a config.
        splits: the splits to check: 'train', 'val', 'test'.
    """
    framework = cfg.get('default_scope')
    boxes_only = framework == 'mmdet' and predicts_boxes_only(within(cfg, 'model'))
    for split in splits:
        evaluator = f'{split}_evaluator'
        for scope, name, metric in metrics_of(cfg.get(evaluator)):
            # a metric of this name in the framework itself or in a project is another one
            if scope not in {None, 'mmbixt', *INSTEAD} - {framework}:
                continue
            shown = f'{scope}.{name}' if scope else name
            if right := INSTEAD.get(framework, {}).get(name):
                yield (
                    f'{evaluator} has {shown}, but this is a config of {framework}, whose '
                    f'models predict {WHAT[framework]}. Use {right}.'
                )
            elif name == 'IoUMetric' and (wrong := _unknown_scores(metric)):
                yield f'{evaluator}: iou_metrics has {wrong}; IoUMetric knows {", ".join(SCORES)}.'
            elif name == 'BoundaryCocoMetric' and boxes_only and not metric.get('format_only'):
                yield f'{evaluator} has {shown}, but this model {BOXES_ONLY}'


def metric_errors(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """The errors of metrics about their arguments, without reading or writing files."""
    scope = cfg.get('default_scope')
    for split in splits:
        for _, name, metric in metrics_of(cfg.get(f'{split}_evaluator')):
            if name not in BEST or name in INSTEAD.get(scope, ()):
                continue
            kind = metric['type']
            if isinstance(kind, str):
                with METRICS.switch_scope_and_registry(metric.get('_scope_')) as there:
                    kind = there.get(kind)
            if getattr(kind, '__module__', '').partition('.')[0] not in {*INSTEAD, 'mmbixt'}:
                continue  # another metric of this name, whose arguments are not known
            try:
                METRICS.build({**metric, **dict.fromkeys(FILES & metric.keys())})
            except Exception as error:
                if 'unexpected keyword' not in str(error):  # of which argument_problems tells
                    yield f'{split}_evaluator ({name}): {explain(error, scope)}'


def _unknown_scores(metric: Mapping[str, Any]) -> str:
    """Names that mmseg refuses only at the end of the first validation."""
    names = metric.get('iou_metrics') or ()
    names = [names] if isinstance(names, str) else names
    return ', '.join(name for name in names if name not in SCORES)


def best_problems(cfg: Mapping[str, Any]) -> Iterator[str]:
    """A message for each name in ``save_best`` that the metrics do not have.

    mmengine looks for it after the first validation.
    """
    evaluator = cfg.get('val_evaluator')
    metrics = [*metrics_of(evaluator)]
    known = BEST.keys() - INSTEAD.get(cfg.get('default_scope'), {}).keys()
    for scope, kind, metric in metrics:
        if kind not in known or metric.get('prefix') or scope not in {None, 'mmbixt', *INSTEAD}:
            return
    if not metrics or 'metrics' in evaluator:  # an evaluator of several data sets adds prefixes
        return
    names = within(cfg, 'default_hooks', 'checkpoint').get('save_best') or ()
    for name in [names] if isinstance(names, str) else names:
        if name != 'auto' and not any(re.fullmatch(BEST[kind][0], name) for _, kind, _ in metrics):
            examples = ', '.join(BEST[kind][1] for _, kind, _ in metrics)
            yield (
                f'default_hooks.checkpoint.save_best = {name!r} is no score of val_evaluator, '
                f'which has for example {examples}.'
            )


def annotation_problems(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """A message for each metric of COCO that reads another file than the data set."""
    for split in splits:
        parts = [*leaves(within(cfg, f'{split}_dataloader', 'dataset'))]
        file = annotation_file(parts[0])
        for _, name, metric in metrics_of(cfg.get(f'{split}_evaluator')):
            of_coco = name in ('CocoMetric', 'BoundaryCocoMetric') and len(parts) == 1
            other = metric.get('ann_file')
            if not (of_coco and other and file.is_file()) or '://' in other:
                continue
            missing = '' if Path(other).is_file() else ', which does not exist'
            if missing or not file.samefile(other):
                yield (
                    f'{split}_evaluator.ann_file is {other}{missing}, but the images of '
                    f'{split}_dataloader are from {file}.'
                )


def predicts_boxes_only(model: Mapping[str, Any]) -> bool:
    """Whether a detector predicts no masks, from its config; False if that is not certain."""
    if model.get('roi_head'):
        return not model['roi_head'].get('mask_head')
    heads = [key for key, part in model.items() if part and key.endswith('_head')]
    # one-stage detectors with masks have a second head, or one head for boxes and masks
    kind = (model.get('bbox_head') or {}).get('type', 'Mask')
    return {*heads} <= {'bbox_head', 'rpn_head'} and not re.search('Ins|Mask|Seg', str(kind))


def metrics_of(evaluator: Any) -> Iterator[tuple[str | None, str, Mapping[str, Any]]]:
    """Scope (or None), name and config of each metric of an evaluator config."""
    if isinstance(evaluator, Mapping) and evaluator.get('metrics') is not None:
        evaluator = evaluator['metrics']  # mmengine's Evaluator, and mmdet's of several data sets
    for metric in evaluator if isinstance(evaluator, list | tuple) else [evaluator]:
        if isinstance(metric, Mapping) and 'type' in metric:
            kind = metric['type']
            if isinstance(kind, type):  # in configs in Python's own syntax
                yield kind.__module__.partition('.')[0], kind.__name__, metric
            else:
                scope, _, name = kind.rpartition('.')
                yield scope or None, name, metric

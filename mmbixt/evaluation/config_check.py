"""Does a config score its predictions with metrics of its own framework? Asked before a run."""

from collections.abc import Iterator, Mapping
from typing import Any

INSTEAD = {
    'mmdet': {
        'BoundaryIoUMetric': "mmbixt.BoundaryCocoMetric with metric=['bbox', 'segm'], "
        'in place of CocoMetric',
        'IoUMetric': "CocoMetric with metric=['bbox', 'segm']",
    },
    'mmseg': {
        'BoundaryCocoMetric': 'mmbixt.BoundaryIoUMetric, beside or in place of IoUMetric',
        'CocoMetric': 'IoUMetric',
    },
    'mmpretrain': dict.fromkeys(
        ('IoUMetric', 'BoundaryIoUMetric', 'CocoMetric', 'BoundaryCocoMetric'),
        'Accuracy with topk=(1, 5)',
    ),
}
WHAT = {'mmdet': 'objects', 'mmseg': 'label maps', 'mmpretrain': 'classes of whole images'}


class WrongMetricError(ValueError):
    """A config of one framework has a metric for predictions of another."""


def check_metrics(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> None:
    """Raise an error that names a metric for predictions of another framework, and the right one.

    Args:
        cfg: a config of mmseg, mmdet or mmpretrain.
        splits: of 'train', 'val' and 'test', those about to be used.
    """
    framework = cfg.get('default_scope')
    for split in splits:
        for scope, name in metric_names(cfg.get(f'{split}_evaluator')):
            # what the framework or a project has under this name is not what is meant here
            if scope not in {None, 'mmbixt', *INSTEAD} - {framework}:
                continue
            right = INSTEAD.get(framework, {}).get(name)
            if right:
                shown = f'{scope}.{name}' if scope else name
                raise WrongMetricError(
                    f'{split}_evaluator has {shown}, but this is a config of {framework}, whose '
                    f'models predict {WHAT[framework]}. Take {right}.'
                )


def metric_names(evaluator: Any) -> Iterator[tuple[str | None, str]]:
    """Scope, if there is one, and name of each metric in the evaluator of a config."""
    if isinstance(evaluator, Mapping) and evaluator.get('metrics') is not None:
        evaluator = evaluator['metrics']  # mmengine's Evaluator, and mmdet's of several data sets
    for metric in evaluator if isinstance(evaluator, list | tuple) else [evaluator]:
        if isinstance(metric, Mapping) and 'type' in metric:
            kind = metric['type']
            if isinstance(kind, type):  # in configs in Python's own syntax
                yield kind.__module__.partition('.')[0], kind.__name__
            else:
                scope, _, name = kind.rpartition('.')
                yield scope or None, name

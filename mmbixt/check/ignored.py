"""Check that all parts of a segmentor's config ignore the same label."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmbixt.check.metrics import metrics_of
from mmbixt.config import within
from mmbixt.datasets.availability import leaves

USUAL = 255  # the default of all these settings in mmseg


def ignored_notes(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """A note if pixels that do not count for one part count for another.

    A loss stops at a label that is no class, and a metric counts its pixels as errors.
    """
    if cfg.get('default_scope') != 'mmseg':
        return
    places: dict[int, list[str]] = {}
    for path, label in _settings(cfg, splits):
        if isinstance(label, int):
            places.setdefault(label, []).append(path)
    if len(places) > 1:
        found = '; '.join(f'{label}: {", ".join(paths)}' for label, paths in places.items())
        yield (
            f'Pixels that do not count have different labels ({found}). A loss stops at a label '
            'that is no class, and a metric counts it as an error: set the same everywhere.'
        )


def _settings(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The place and the value of each setting for pixels that do not count."""
    for name in ('decode_head', 'auxiliary_head') if 'train' in splits else ():
        heads = (cfg.get('model') or {}).get(name) or ()
        for head in filter(None, [heads] if isinstance(heads, Mapping) else heads):
            if 'num_classes' not in head:  # of depth, for example
                return
            yield f'model.{name}.ignore_index', head.get('ignore_index', USUAL)
    if 'train' in splits:
        label = within(cfg, 'model', 'data_preprocessor').get('seg_pad_val', USUAL)
        yield 'model.data_preprocessor.seg_pad_val', label
    for split in splits:
        given = within(cfg, f'{split}_dataloader', 'dataset')
        for dataset in leaves(given) if given else ():
            path = f'{split}_dataloader.dataset.ignore_index'
            yield path, dataset.get('ignore_index', USUAL)
        for _, name, metric in metrics_of(cfg.get(f'{split}_evaluator')):
            if name in ('IoUMetric', 'BoundaryIoUMetric'):
                yield f'{split}_evaluator.ignore_index', metric.get('ignore_index', USUAL)

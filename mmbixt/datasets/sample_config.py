"""``--sample``: a config as it is, but on generated scenes and small enough for a laptop.

Only what must change does, and every change is reported in a line.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from mmbixt.datasets.sample_data import write_sample_data

# where write_sample_data puts what the stock dataset classes read
_ROOTS = {'ADE20KDataset': 'ade/ADEChallengeData2016', 'CocoDataset': 'coco/'}
_SIZE_KEYS = ('scale', 'scales', 'crop_size', 'size', 'img_scale')

SHRINK = 4  # 512-pixel crops become 128-pixel ones
ITERATIONS = 500
WARM_UP = 50
BATCH_SIZE = 4
LEARNING_RATE = 5e-4


def use_sample_data(cfg: Config, root: str = 'data/sample') -> list[str]:
    """Change a config in place to train and evaluate on generated scenes, written where needed.

    Args:
        cfg: a config of mmseg (ADE20K) or mmdet (COCO).
        root: folder of the scenes.

    Returns:
        What was changed, a line each.
    """
    root = write_sample_data(root)
    changes = [
        _redirect_data(cfg, Path(root)),
        _shrink_images(cfg),
        _shorten(cfg),
        _forget_weights(cfg),
        _single_device_norms(cfg),
    ]
    return [change for change in changes if change]


def _redirect_data(cfg: Config, root: Path) -> str:
    def redirect(node: ConfigDict) -> None:
        if 'data_root' in node:
            if node.type not in _ROOTS:
                raise ValueError(
                    f'--sample has ADE20K and COCO scenes, not scenes for {node.type}.'
                )
            node.data_root = str(root / _ROOTS[node.type])
        if str(node.get('ann_file', '')).startswith('data/coco/'):  # a metric's
            node.ann_file = str(root / Path(node.ann_file).relative_to('data'))

    _visit(cfg, redirect)
    return f'data: generated scenes in {root}'


def _shrink_images(cfg: Config) -> str:
    def shrink(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(shrink(item) for item in value)
        return max(32, value // SHRINK) if isinstance(value, int) else value

    def visit(node: ConfigDict) -> None:
        for key in _SIZE_KEYS:
            if isinstance(node.get(key), (list, tuple)):
                node[key] = shrink(node[key])

    for name in [key for key in cfg if key.endswith(('_dataloader', '_pipeline'))]:
        _visit(cfg[name], visit)
    _visit(cfg.model, visit)
    return f'sizes: divided by {SHRINK}, crops, test images and padding'


def _shorten(cfg: Config) -> str:
    cfg.train_dataloader.batch_size = BATCH_SIZE
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].update(num_workers=1, persistent_workers=True)
    cfg.train_cfg = dict(type='IterBasedTrainLoop', max_iters=ITERATIONS, val_interval=ITERATIONS)
    cfg.default_hooks.checkpoint.update(by_epoch=False, interval=ITERATIONS // 2)
    cfg.default_hooks.logger.update(interval=10)
    cfg.optim_wrapper.optimizer.lr = LEARNING_RATE
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=WARM_UP),
        dict(type='PolyLR', eta_min=0.0, by_epoch=False, begin=WARM_UP, end=ITERATIONS),
    ]
    return (
        f'schedule: {ITERATIONS} iterations of {BATCH_SIZE} images, learning rate {LEARNING_RATE} '
        f'after {WARM_UP} iterations of warm-up (a short run from random weights)'
    )


def _forget_weights(cfg: Config) -> str | None:
    forgotten = [cfg.load_from] if cfg.get('load_from') else []
    cfg.load_from = None

    def forget(node: ConfigDict) -> None:
        for key in ('init_cfg', 'pretrained'):
            value = node.get(key)
            if isinstance(value, str) or (value and value.get('type') == 'Pretrained'):
                forgotten.append(value)
                node[key] = None

    _visit(cfg.model, forget)
    return f'weights: random instead of {", ".join(map(str, forgotten))}' if forgotten else None


def _single_device_norms(cfg: Config) -> str | None:
    replaced = []

    def replace(node: ConfigDict) -> None:
        if node.get('type') == 'SyncBN':
            node.type = 'BN'
            replaced.append(node)

    _visit(cfg.model, replace)
    return 'norms: BN instead of SyncBN, which needs several GPUs' if replaced else None


def _visit(node: Any, action: Callable[[ConfigDict], None]) -> None:
    """Call an action on every dict in a config."""
    for part in _dicts(node):
        action(part)


def _dicts(node: Any) -> Iterator[ConfigDict]:
    if isinstance(node, (dict, Config)):
        if isinstance(node, dict):
            yield node
        for value in list(node.values()):
            yield from _dicts(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _dicts(value)

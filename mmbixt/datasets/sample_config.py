"""``--sample``: a config as it is, but on generated scenes and small enough for a laptop.

Only what must change does, and every change is reported in a line.
"""

from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from mmbixt.datasets.sample_data import write_sample_data

# where write_sample_data puts what the stock dataset classes read
_ROOTS = {'ADE20KDataset': 'ade/ADEChallengeData2016', 'CocoDataset': 'coco/'}
_SIZE_KEYS = ('scale', 'scales', 'crop_size', 'size', 'img_scale', 'stride', 'random_size_range')

SHRINK = 4  # 512-pixel crops become 128-pixel ones
SCALES = (1.0, 1.25)  # of random resizing
ITERATIONS = 700
WARM_UP = 50
BATCH_SIZE = 4
LEARNING_RATE = 1e-3


class NoSampleError(ValueError):
    """There are no generated scenes for this kind of dataset."""


def use_sample_data(cfg: Config, root: str = 'data/sample') -> list[str]:
    """Change a config in place to train and evaluate on generated scenes, written where needed.

    Args:
        cfg: a config of mmseg (ADE20K) or mmdet (COCO).
        root: folder of the scenes.

    Returns:
        What was changed, a line each.
    """
    _check(cfg)
    root = write_sample_data(root)
    changes = [
        _redirect_data(cfg, Path(root)),
        _shrink_images(cfg),
        _shorten(cfg),
        _forget_weights(cfg),
        _single_device_norms(cfg),
    ]
    return [change for change in changes if change]


def _check(cfg: Config) -> None:
    missing = [key for key in ('model', 'train_dataloader', 'optim_wrapper') if key not in cfg]
    if missing:
        raise NoSampleError(f'--sample is for whole configs; this one has no {", ".join(missing)}.')
    kinds = {node.get('type') for node in _dicts(cfg) if 'data_root' in node}
    if not kinds <= set(_ROOTS):
        others = ', '.join(sorted(map(str, kinds - set(_ROOTS))))
        raise NoSampleError(f'--sample has scenes for {" and ".join(_ROOTS)}, none for {others}.')


def _redirect_data(cfg: Config, root: Path) -> str:
    for node in _dicts(cfg):
        if 'data_root' in node:
            node.data_root = str(root / _ROOTS[node.type])
        if str(node.get('ann_file', '')).startswith('data/coco/'):  # a metric's
            node.ann_file = str(root / Path(node.ann_file).relative_to('data'))
    return f'data: generated scenes in {root}'


def _shrink_images(cfg: Config) -> str:
    def shrink(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(shrink(item) for item in value)
        return max(32, value // SHRINK) if isinstance(value, int) else value

    # in a model a size may be something else than an image's, such as an anchor's
    parts = [cfg[key] for key in cfg if key != 'model']
    parts += [cfg.model.get('data_preprocessor'), cfg.model.get('test_cfg')]
    for node in _dicts(parts):
        for key in _SIZE_KEYS:
            if isinstance(node.get(key), (list, tuple)):
                node[key] = shrink(node[key])
        if 'ratio_range' in node:
            node.ratio_range = SCALES
    return (
        f'sizes: crops, test images and padding divided by {SHRINK}, random scales {SCALES} (a '
        'short run cannot learn objects of every size)'
    )


def _shorten(cfg: Config) -> str:
    cfg.train_dataloader.batch_size = BATCH_SIZE
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].update(num_workers=1, persistent_workers=True)
    cfg.train_cfg = dict(
        type='IterBasedTrainLoop', max_iters=ITERATIONS, val_interval=ITERATIONS // 4
    )
    cfg.log_processor.by_epoch = False
    cfg.default_hooks.checkpoint.update(by_epoch=False, interval=ITERATIONS // 2)
    cfg.default_hooks.logger.update(interval=10)
    optimizer = cfg.optim_wrapper.optimizer
    if optimizer.type.startswith('Adam'):
        optimizer.lr = LEARNING_RATE
    else:  # SGD's goes with the batch
        optimizer.lr *= BATCH_SIZE / cfg.get('auto_scale_lr', {}).get('base_batch_size', 16)
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=WARM_UP),
        dict(type='PolyLR', eta_min=0.0, by_epoch=False, begin=WARM_UP, end=ITERATIONS),
    ]
    return (
        f'schedule: {ITERATIONS} iterations of {BATCH_SIZE} images, learning rate {optimizer.lr} '
        f'after {WARM_UP} iterations of warm-up (a short run from random weights)'
    )


def _forget_weights(cfg: Config) -> str | None:
    forgotten = [cfg.load_from] if cfg.get('load_from') else []
    cfg.load_from = None
    for node in _dicts(cfg.model):
        for key in ('init_cfg', 'pretrained'):
            value = node.get(key)
            if isinstance(value, str) or (value and value.get('type') == 'Pretrained'):
                forgotten.append(value if isinstance(value, str) else value.checkpoint)
                node[key] = None
    if not forgotten:
        return None
    for node in _dicts(cfg.model):  # what is kept as it was pretrained has to learn now
        for key, learning in (('frozen_stages', -1), ('norm_eval', False)):
            if key in node:
                node[key] = learning
    return f'weights: random instead of {", ".join(forgotten)}, and nothing frozen'


def _single_device_norms(cfg: Config) -> str | None:
    synchronised = [node for node in _dicts(cfg.model) if node.get('type') == 'SyncBN']
    for node in synchronised:
        node.type = 'BN'
    return 'norms: BN instead of SyncBN, which needs several GPUs' if synchronised else None


def _dicts(node: Any) -> list[ConfigDict]:
    """All dicts in a config, each once."""
    found: dict[int, ConfigDict] = {}

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            found[id(node)] = node
        if isinstance(node, (dict, Config)):
            node = list(node.values())
        if isinstance(node, (list, tuple)):
            for part in node:
                collect(part)

    collect(node)
    return list(found.values())

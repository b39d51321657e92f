"""``--sample``: change a config to a short run on generated scenes, for a laptop."""

from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from mmbixt.sample.sample_data import write_sample_data

# folders of write_sample_data for the stock dataset classes
_ROOTS = {
    'ADE20KDataset': 'ade/ADEChallengeData2016',
    'CocoDataset': 'coco/',
    'ImageNet': 'imagenet',
    'CIFAR100': 'imagenet',  # see _read_as_imagenet
}
_SIZE_KEYS = ('scale', 'scales', 'crop_size', 'size', 'img_scale', 'stride', 'random_size_range')
# crops of 512 pixels become 128, a classifier's 224 become 112; SCALES is for random resizing
SHRINK, SHRINK_CLASSIFIER, SCALES = 4, 2, (1.0, 1.25)
ITERATIONS, WARM_UP = 700, 50
LEARNING_RATE, LEARNING_RATE_LAMB = 1e-3, 1e-2  # LAMB's steps are relative to the weights
BATCH_SIZE, BATCH_SIZE_CLASSIFIER = 4, 8
REGIONS_OF_DETECTORS = 16
AVERAGED = 100  # iterations that averaged weights (EMA) cover


class NoSampleError(ValueError):
    """``--sample`` does not support a config."""


def use_sample_data(cfg: Config, root: str = 'data/sample') -> list[str]:
    """Change a config of ADE20K, COCO, ImageNet or CIFAR-100 in place, as little as possible.

    The scenes are written to ``root`` unless they exist. Returns a line for each change.
    """
    needed = {'model', 'train_dataloader', 'optim_wrapper'}
    if missing := ', '.join(sorted(needed - set(cfg))):
        raise NoSampleError(f'--sample needs a complete config; this one has no {missing}.')
    kinds = {str(node.get('type')) for node in all_dicts(cfg) if 'data_root' in node}
    if others := ', '.join(sorted(kinds - set(_ROOTS))):
        raise NoSampleError(f'--sample has scenes for {", ".join(_ROOTS)}, none for {others}.')
    changes = [_redirect_data(cfg, write_sample_data(root)), _shrink_images(cfg), _shorten(cfg)]
    changes += _read_as_imagenet(cfg) + _remove_weights(cfg) + _shorten_average(cfg)
    changes += _route_among_fewer(cfg)
    return changes


def all_dicts(*nodes: Any) -> list[ConfigDict]:
    """All dicts in parts of a config, each once."""
    found, rest = {}, list(nodes)
    while rest:
        node = rest.pop(0)
        if isinstance(node, dict):
            found[id(node)] = node
        if isinstance(node, (dict, Config)):
            node = list(node.values())
        rest += node if isinstance(node, (list, tuple)) else ()
    return list(found.values())


def _redirect_data(cfg: Config, root: Path) -> str:
    for node in all_dicts(cfg):
        if 'data_root' in node:
            node.data_root = str(root / _ROOTS[node.type])
        if str(node.get('ann_file', '')).startswith('data/coco/'):  # of a metric
            node.ann_file = str(root / Path(node.ann_file).relative_to('data'))
    return f'data: generated scenes in {root}'


def _read_as_imagenet(cfg: Config) -> list[str]:
    """Replace CIFAR-100, whose class refuses other files, and which has no car and no dog."""
    datasets = [node for node in all_dicts(cfg) if node.get('type') == 'CIFAR100']
    for dataset in datasets:
        dataset.update(type='ImageNet', split=dict(train='train', test='val')[dataset.split])
        dataset.pipeline = [dict(type='LoadImageFromFile'), *dataset.pipeline]
    if not datasets:
        return []
    cfg.data_preprocessor.update(num_classes=1000, to_rgb=True)
    cfg.model.head.num_classes = 1000
    return ['classes: the 1000 of ImageNet, because CIFAR-100 lacks classes of the scenes']


def _classifies(cfg: Config) -> bool:
    return cfg.get('default_scope') == 'mmpretrain'


def _shrink_images(cfg: Config) -> str:
    factor = SHRINK_CLASSIFIER if _classifies(cfg) else SHRINK

    def shrink(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(shrink, value))
        return max(32, value // factor) if isinstance(value, int) else value

    # in a model, other things have sizes, such as anchors
    outside = [cfg[key] for key in cfg if key != 'model']
    for node in all_dicts(*outside, cfg.model.get('data_preprocessor'), cfg.model.get('test_cfg')):
        for key in _SIZE_KEYS:
            if isinstance(node.get(key), (int, list, tuple)):
                node[key] = shrink(node[key])
        if 'ratio_range' in node:
            node.ratio_range = SCALES
    change = f'sizes: crops, test images and padding divided by {factor}'
    return change if _classifies(cfg) else f'{change}, random scales {SCALES}'


def _shorten(cfg: Config) -> str:
    batch_size = BATCH_SIZE_CLASSIFIER if _classifies(cfg) else BATCH_SIZE
    cfg.train_dataloader.batch_size = batch_size
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].update(num_workers=1, persistent_workers=True)
    interval = ITERATIONS // 4
    cfg.train_cfg = dict(type='IterBasedTrainLoop', max_iters=ITERATIONS, val_interval=interval)
    cfg.setdefault('log_processor', ConfigDict()).by_epoch = False
    cfg.default_hooks.checkpoint.update(by_epoch=False, interval=ITERATIONS // 2)
    cfg.default_hooks.logger.update(interval=10)
    optimizer = cfg.optim_wrapper.optimizer
    if optimizer.type != 'SGD':
        optimizer.lr = LEARNING_RATE_LAMB if optimizer.type == 'Lamb' else LEARNING_RATE
    else:  # in proportion to the batch size
        optimizer.lr *= batch_size / cfg.get('auto_scale_lr', {}).get('base_batch_size', 16)
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=WARM_UP),
        dict(type='PolyLR', eta_min=0.0, by_epoch=False, begin=WARM_UP, end=ITERATIONS),
    ]
    run = f'{ITERATIONS} iterations of {batch_size} images'
    return f'schedule: {run}, learning rate {optimizer.lr} after {WARM_UP} iterations of warm-up'


def _remove_weights(cfg: Config) -> list[str]:
    removed = [cfg.load_from] if cfg.get('load_from') else []
    cfg.load_from = None
    for node in all_dicts(cfg.model):
        for key in ('init_cfg', 'pretrained'):
            value = node.get(key)
            if isinstance(value, str) or (value and value.get('type') == 'Pretrained'):
                removed.append(value if isinstance(value, str) else value.checkpoint)
                node[key] = None
    if not removed:
        return []
    for node in all_dicts(cfg.model):  # random weights must not be frozen
        node.update({k: v for k, v in dict(frozen_stages=-1, norm_eval=False).items() if k in node})
    return [f'weights: random instead of {", ".join(removed)}, and nothing frozen']


def _shorten_average(cfg: Config) -> list[str]:
    """Averaged weights are evaluated; in a short run they would stay near the initial ones."""
    hooks = [hook for hook in all_dicts(cfg.get('custom_hooks')) if hook.type.endswith('EMAHook')]
    for hook in hooks:
        hook.momentum = 1 / AVERAGED
        hook.pop('begin_epoch', None)
        hook.pop('begin_iter', None)
    return [f'average: of the weights of about {AVERAGED} iterations'] if hooks else []


def _route_among_fewer(cfg: Config) -> list[str]:
    """BiFormer's regions for detection are more than the cells of a side that is left."""
    backbones = [x for x in all_dicts(cfg.model) if x.get('num_regions') == REGIONS_OF_DETECTORS]
    for backbone in backbones:
        backbone.num_regions //= 2
    return ['regions: half as many per side of a feature map'] if backbones else []

"""``--sample``: change a config to a short run on generated scenes, for a laptop."""

from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from mmbixt.config import ConfigError, all_dicts, type_name
from mmbixt.sample.sample_data import write_sample_data

# of each framework: its dataset class, and the folder of write_sample_data for it
_DATASETS = {
    'mmseg': ('ADE20KDataset', 'ade/ADEChallengeData2016'),
    'mmdet': ('CocoDataset', 'coco/'),
    'mmpretrain': ('ImageNet', 'imagenet'),
}
_SIZE_KEYS = {'scale', 'scales', 'crop_size', 'size', 'img_scale', 'stride', 'random_size_range'}
ITERATIONS, INTERVAL, WARM_UP = 700, 175, 50  # in all, between validations, of warm-up


def use_sample_data(cfg: Config, root: str = 'data/sample') -> list[str]:
    """Change a config of ADE20K, COCO or ImageNet in place, as little as possible.

    The scenes are written to ``root`` unless they exist. Returns a line for each change.
    """
    scope = cfg.get('default_scope')
    known, folder = _DATASETS.get(scope, (None, None))
    loading = all_dicts(*(part for key, part in cfg.items() if key.endswith('_dataloader')))
    datasets = [node for node in loading if 'data_root' in node]
    kinds = {type_name(node).rpartition('.')[2] for node in datasets}
    if kinds != {known}:
        has = ', '.join(sorted(kinds)) or 'no dataset'
        raise ConfigError(
            f'--sample is for configs with {", ".join(name for name, _ in _DATASETS.values())}. '
            f'This config has {has} of {scope}.'
        )
    data = write_sample_data(root)
    for node in datasets:
        node.data_root = str(data / folder)
    for node in loading:
        if 'num_workers' in node:
            node.update(num_workers=1, persistent_workers=True)
    for node in all_dicts(cfg.get('val_evaluator'), cfg.get('test_evaluator')):
        if 'ann_file' in node:
            node.ann_file = str(data / 'coco/annotations' / Path(node.ann_file).name)
    # crops of 224 pixels become 112, and of 512 become 128
    factor, batch_size = (2, 8) if scope == 'mmpretrain' else (4, 4)
    _shrink_images(cfg, factor)
    _shorten(cfg, batch_size)
    _remove_weights(cfg)
    return [
        f'data: generated scenes in {data}',
        f'sizes: crops, test images and padding divided by {factor}',
        f'schedule: {ITERATIONS} iterations of {batch_size} images in each process, learning rate '
        f'{cfg.optim_wrapper.optimizer.lr}',
        'weights: random',
    ]


def _shrink_images(cfg: Config, factor: int) -> None:
    def shrink(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(shrink, value))
        return max(32, value // factor) if isinstance(value, int) else value

    # in a model, other things have sizes, such as anchors
    outside = [cfg[key] for key in cfg if key != 'model']
    for node in all_dicts(*outside, cfg.model.get('data_preprocessor'), cfg.model.get('test_cfg')):
        for key in _SIZE_KEYS & node.keys():
            node[key] = shrink(node[key])
        if 'ratio_range' in node:
            node.ratio_range = (1.0, 1.25)


def _shorten(cfg: Config, batch_size: int) -> None:
    cfg.train_dataloader.batch_size = batch_size
    cfg.train_cfg = dict(type='IterBasedTrainLoop', max_iters=ITERATIONS, val_interval=INTERVAL)
    cfg.setdefault('log_processor', ConfigDict()).by_epoch = False
    cfg.default_hooks.checkpoint.update(by_epoch=False, interval=2 * INTERVAL)
    cfg.default_hooks.logger.update(interval=10)
    optimizer = cfg.optim_wrapper.optimizer
    optimizer.lr = 1e-2 if type_name(optimizer) == 'Lamb' else 1e-3  # LAMB's is relative
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=WARM_UP),
        dict(type='PolyLR', eta_min=0.0, by_epoch=False, begin=WARM_UP, end=ITERATIONS),
    ]


def _remove_weights(cfg: Config) -> None:
    cfg.load_from = None
    for node in all_dicts(cfg.model):
        for key in ('init_cfg', 'pretrained'):
            value = node.get(key)  # a file, or how to begin, which may be a list
            if isinstance(value, str) or (isinstance(value, dict) and 'checkpoint' in value):
                node[key] = None
        if 'norm_eval' in node:  # statistics of random weights must not be frozen
            node.norm_eval = False
